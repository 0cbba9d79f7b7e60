//! Metalink documents (RFC 5854) for servers to serve: written by hand here, so that a reader is
//! not tested against its own writer.

use super::content::{Algorithm, Content, hex};

/// One file of a Metalink document.
#[derive(Clone, Debug)]
pub struct MetalinkFile<'a> {
    /// The name to save under, written as it is: hostile names are the caller's wish.
    pub name: &'a str,
    /// The bytes, for size and digests.
    pub content: &'a Content,
    /// Mirrors, the best first.
    pub urls: &'a [String],
    /// Digests of the whole file.
    pub digests: &'a [Algorithm],
    /// Length of the pieces, with SHA-256 each.
    pub piece_bytes: Option<u64>,
}

/// Returns the document that describes these files.
pub fn metalink(files: &[MetalinkFile<'_>]) -> String {
    let mut text = String::from(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <metalink xmlns=\"urn:ietf:params:xml:ns:metalink\">\n",
    );
    for file in files {
        add_file(&mut text, file);
    }
    text.push_str("</metalink>\n");
    text
}

fn add_file(text: &mut String, file: &MetalinkFile<'_>) {
    let size = file.content.size_bytes();
    text.push_str(&format!("  <file name=\"{}\">\n", escape(file.name)));
    text.push_str(&format!("    <size>{size}</size>\n"));
    for algorithm in file.digests {
        let digest = file.content.digest_hex(*algorithm);
        text.push_str(&format!("    <hash type=\"{}\">{digest}</hash>\n", algorithm.name()));
    }
    if let Some(piece_bytes) = file.piece_bytes.filter(|bytes| *bytes > 0) {
        text.push_str(&format!("    <pieces length=\"{piece_bytes}\" type=\"sha-256\">\n"));
        let mut start = 0;
        while start < size {
            let end = size.min(start + piece_bytes);
            let digest = hex(&file.content.digest_of(start, end, Algorithm::Sha256));
            text.push_str(&format!("      <hash>{digest}</hash>\n"));
            start = end;
        }
        text.push_str("    </pieces>\n");
    }
    for (place, url) in file.urls.iter().enumerate() {
        let url = escape(url);
        text.push_str(&format!("    <url priority=\"{}\">{url}</url>\n", place + 1));
    }
    text.push_str("  </file>\n");
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_the_file_and_text_is_escaped() {
        let content = Content::random(1, 250);
        let urls = ["http://127.0.0.1:1/a?b=1&c=2".to_owned()];
        let text = metalink(&[MetalinkFile {
            name: "a\"b",
            content: &content,
            urls: &urls,
            digests: &[Algorithm::Sha256, Algorithm::Adler32],
            piece_bytes: Some(100),
        }]);
        assert_eq!(text.matches("<hash").count(), 5);
        assert!(text.contains("<url priority=\"1\">http://127.0.0.1:1/a?b=1&amp;c=2</url>"));
        assert!(text.contains("<file name=\"a&quot;b\">") && text.contains("<size>250</size>"));
        assert!(text.contains(&content.digest_hex(Algorithm::Sha256)));
    }
}
