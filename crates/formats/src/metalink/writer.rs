//! Writing Metalink 4.

use std::io::{self, Write};

use quick_xml::escape::escape;

use super::{File, Metalink, NAMESPACE, NAMESPACE_OWN, PRIORITY_WORST};

/// Writes `metalink` in the form of RFC 5854, without parts skipped when it was read.
pub fn write(metalink: &Metalink, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>")?;
    writeln!(out, "<metalink xmlns=\"{NAMESPACE}\">")?;
    if let Some(generator) = &metalink.header.generator {
        writeln!(out, "  <generator>{}</generator>", escape(generator))?;
    }
    if let Some(origin) = &metalink.header.origin {
        let dynamic = if origin.dynamic { " dynamic=\"true\"" } else { "" };
        writeln!(out, "  <origin{dynamic}>{}</origin>", escape(origin.url.as_str()))?;
    }
    for file in &metalink.files {
        write_file(file, out)?;
    }
    writeln!(out, "</metalink>")
}

/// Writes like [`write()`], to a text.
pub fn to_string(metalink: &Metalink) -> String {
    let mut bytes = Vec::new();
    // Writing to memory does not fail, and only text is written.
    let _ = write(metalink, &mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

fn write_file(file: &File, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "  <file name=\"{}\">", escape(file.name.as_str()))?;
    if let Some(identity) = &file.identity {
        writeln!(out, "    <identity>{}</identity>", escape(identity))?;
    }
    if let Some(size_bytes) = file.size_bytes {
        writeln!(out, "    <size>{size_bytes}</size>")?;
    }
    for digest in &file.digests {
        writeln!(out, "    <hash type=\"{}\">{}</hash>", digest.algorithm(), digest.to_hex())?;
    }
    if let Some(pieces) = &file.pieces {
        let (length_bytes, algorithm) = (pieces.length_bytes(), pieces.algorithm());
        writeln!(out, "    <pieces length=\"{length_bytes}\" type=\"{algorithm}\">")?;
        for digest in (0..pieces.count()).filter_map(|piece| pieces.digest(piece)) {
            writeln!(out, "      <hash>{}</hash>", digest.to_hex())?;
        }
        writeln!(out, "    </pieces>")?;
    }
    for mirror in &file.mirrors {
        write!(out, "    <url")?;
        write_priority(mirror.priority, out)?;
        if let Some([a, b]) = mirror.location {
            write!(out, " location=\"{}{}\"", char::from(a), char::from(b))?;
        } else if let Some(name) = &mirror.name {
            write!(out, " location=\"{}\"", escape(&**name))?;
        }
        writeln!(out, ">{}</url>", escape(mirror.url.as_str()))?;
    }
    for held in &file.held {
        let ranges = held.ranges.iter().map(|range| format!("{}-{}", range.start, range.end - 1));
        let ranges = ranges.collect::<Vec<_>>().join(",");
        write!(out, "    <held xmlns=\"{NAMESPACE_OWN}\" ranges=\"{ranges}\"")?;
        write_priority(held.priority, out)?;
        writeln!(out, ">{}</held>", escape(held.url.as_str()))?;
    }
    for metaurl in &file.metaurls {
        write!(out, "    <metaurl")?;
        write_priority(metaurl.priority, out)?;
        if !metaurl.media_type.is_empty() {
            write!(out, " mediatype=\"{}\"", escape(&metaurl.media_type))?;
        }
        if let Some(name) = &metaurl.name {
            write!(out, " name=\"{}\"", escape(name.as_str()))?;
        }
        writeln!(out, ">{}</metaurl>", escape(metaurl.url.as_str()))?;
    }
    writeln!(out, "  </file>")
}

fn write_priority(priority: u32, out: &mut impl Write) -> io::Result<()> {
    if priority < PRIORITY_WORST {
        write!(out, " priority=\"{priority}\"")?;
    }
    Ok(())
}
