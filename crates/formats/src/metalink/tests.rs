//! Tests of reading and writing Metalinks.

use std::io::{BufReader, Read};

use proptest::prelude::*;
use swath_model::Range;
use swath_model::digest::{Algorithm, Hasher};
use swath_model::pieces::Pieces;

use super::*;

const RUCIO: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<metalink xmlns="urn:ietf:params:xml:ns:metalink">
 <file name="AOD.01234._000001.pool.root.1">
  <parents>
   <did>mc23:AOD.01234</did>
  </parents>
  <identity>mc23:AOD.01234._000001.pool.root.1</identity>
  <hash type="adler32">f837543</hash>
  <hash type="md5">ed645d9433d30e458d6f757749206747</hash>
  <size>10485760</size>
  <glfn name="/atlas/rucio/mc23:AOD.01234._000001.pool.root.1"></glfn>
  <url location="SITE-A_DATADISK" domain="wan" priority="3" client_extract="false">root://xrd.example:1094//a/f1</url>
  <url location="SITE-B_DATADISK" domain="wan" priority="2" client_extract="false">davs://dav.example:443/b/f1</url>
  <url location="SITE-C" domain="lan" priority="1" client_extract="false">https://s3.example/c/f1?X-Sig=a&amp;X-Date=b</url>
  <url location="SITE-D" domain="wan" priority="4">gsiftp://ftp.example:2811/d/f1</url>
  <url location="SITE-E" domain="wan" priority="5">https://old.example/e/f1?Sig=a&Date=b</url>
 </file>
</metalink>
"#;

#[test]
fn an_attribute_that_stands_twice_is_malformed() {
    // The first of two names counted, whatever another reader of the same document took.
    for doubled in ["name=\"a\" name=\"../b\"", "name=\"a\" xmlns:x=\"urn:x\" x:n=\"1\" x:n=\"2\""]
    {
        let text = in_metalink(&format!("<file {doubled}/>"));
        assert!(problem(&text).contains("malformed XML"), "{}", problem(&text));
    }
    let other = in_metalink("<file xmlns:x=\"urn:x\" x:name=\"../b\" name=\"a\"/>");
    assert_eq!(parse(other.as_bytes()).unwrap().files[0].name.as_str(), "a");
}

#[test]
fn rucio_is_read() {
    let metalink = parse(RUCIO.as_bytes()).unwrap();
    let [file] = &metalink.files[..] else { panic!() };
    assert_eq!(file.name.as_str(), "AOD.01234._000001.pool.root.1");
    assert_eq!(file.identity.as_deref(), Some("mc23:AOD.01234._000001.pool.root.1"));
    assert_eq!(file.size_bytes, Some(10_485_760));
    assert_eq!(file.digests.iter().map(|it| it.algorithm()).max(), Some(Algorithm::Md5));
    assert_eq!(file.digests[0].to_string(), "adler32:0f837543");
    let mirrors: Vec<_> =
        file.mirrors.iter().map(|m| (m.priority, m.url.as_str(), m.name.as_deref())).collect();
    assert_eq!(
        mirrors,
        [
            (1, "https://s3.example/c/f1?X-Sig=a&X-Date=b", Some("SITE-C")),
            (2, "https://dav.example/b/f1", Some("SITE-B_DATADISK")),
            (5, "https://old.example/e/f1?Sig=a&Date=b", Some("SITE-E")),
        ]
    );
    let skipped: Vec<_> = file.skipped.iter().map(|s| (&*s.what, s.line)).collect();
    assert_eq!(
        skipped,
        [("root://xrd.example:1094//a/f1", 12), ("gsiftp://ftp.example:2811/d/f1", 15)]
    );
    let summary = metalink.skipped_summary();
    assert_eq!(summary.len(), 2);
    assert!(summary[0].0.contains("is not supported"), "{summary:?}");
}

#[test]
fn rfc_5854_is_read() {
    let text = r#"<?xml version="1.0"?>
<ml:metalink xmlns:ml="urn:ietf:params:xml:ns:metalink" xmlns:x="urn:example:x">
  <ml:published>2009-05-15T12:23:23Z</ml:published>
  <ml:generator>maker/1.0</ml:generator>
  <ml:origin dynamic="true">https://example.com/example.ext.metalink</ml:origin>
  <ml:file name="dir/example.ext">
    <ml:size>14471447</ml:size>
    <x:size>7</x:size>
    <ml:hash type="sha-224">00</ml:hash>
    <ml:hash type="sha-1">80bc95fd391772fa61c91ed68567f0980bb45fd9</ml:hash>
    <ml:pieces length="10000000" type="sha-1">
      <ml:hash>0000000000000000000000000000000000000001</ml:hash>
      <ml:hash><![CDATA[0000000000000000000000000000000000000002]]></ml:hash>
    </ml:pieces>
    <ml:pieces length="10000000" type="md5"><ml:hash>00</ml:hash></ml:pieces>
    <ml:url location="DE" priority="1">http://a.example.com/e&#120;ample.ext</ml:url>
    <ml:url>http://b.example.com/example.ext</ml:url>
    <ml:url>http://b.example.com/example.ext</ml:url>
    <ml:url priority="2">relative.ext</ml:url>
    <ml:metaurl mediatype="torrent" priority="2" name="x">https://example.com/example.torrent</ml:metaurl>
  </ml:file>
</ml:metalink>"#;
    let base = Url::parse("https://example.com/a/b.meta4").unwrap();
    let options = Options { base: Some(base), ..Options::default() };
    let metalink = parse_with(text.as_bytes(), options).unwrap();
    assert_eq!(metalink.header.generator.as_deref(), Some("maker/1.0"));
    assert!(metalink.header.origin.as_ref().unwrap().dynamic);
    let file = &metalink.files[0];
    assert_eq!(file.size_bytes, Some(14_471_447));
    assert_eq!(file.digests.len(), 1);
    let pieces = file.pieces.as_ref().unwrap();
    assert_eq!((pieces.count(), pieces.length_bytes()), (2, 10_000_000));
    assert_eq!(pieces.digest(1).unwrap().as_bytes()[19], 2);
    let mirrors: Vec<_> = file.mirrors.iter().map(|m| (m.url.as_str(), m.location)).collect();
    assert_eq!(
        mirrors,
        [
            ("http://a.example.com/example.ext", Some(*b"de")),
            ("https://example.com/a/relative.ext", None),
            ("http://b.example.com/example.ext", None),
        ]
    );
    assert_eq!(file.metaurls[0].media_type, "torrent");
    let reasons: Vec<_> = file.skipped.iter().map(|s| s.reason.to_string()).collect();
    assert_eq!(reasons.len(), 2, "{reasons:?}");
    assert!(reasons[0].contains("unknown digest algorithm 'sha-224'"));
    assert!(reasons[1].contains("a md5 digest has 32"));
}

#[test]
fn metalink_3_is_read() {
    let text = r#"<metalink version="3.0" xmlns="http://www.metalinker.org/" type="dynamic"
      origin="http://example.com/x.metalink" generator="old &amp; grey">
  <files><file name="x.iso"><size>2000</size>
    <verification><hash type="sha1">80bc95fd391772fa61c91ed68567f0980bb45fd9</hash>
      <pieces length="1024" type="sha1">
        <hash piece="0">0000000000000000000000000000000000000001</hash>
        <hash piece="1">0000000000000000000000000000000000000002</hash>
      </pieces></verification>
    <resources maxconnections="2">
      <url type="ftp" preference="90">ftp://example.com/x.iso</url>
      <url type="http" location="us" preference="10">http://b.example.com/x.iso</url>
      <url type="http" location="us" preference="100">http://a.example.com/x.iso</url>
      <url type="bittorrent" preference="95">http://example.com/x.iso.torrent</url>
    </resources></file></files></metalink>"#;
    let metalink = parse(text.as_bytes()).unwrap();
    assert_eq!(metalink.header.generator.as_deref(), Some("old & grey"));
    assert!(metalink.header.origin.unwrap().dynamic);
    let file = &metalink.files[0];
    assert_eq!(file.digests[0].algorithm(), Algorithm::Sha1);
    assert_eq!(file.pieces.as_ref().unwrap().count(), 2);
    let mirrors: Vec<_> = file.mirrors.iter().map(|m| (m.priority, m.url.as_str())).collect();
    assert_eq!(mirrors, [(1, "http://a.example.com/x.iso"), (91, "http://b.example.com/x.iso")]);
    assert_eq!(file.metaurls[0].media_type, "torrent");
    assert_eq!(file.skipped.len(), 1);
}

fn problem(text: &str) -> String {
    parse(text.as_bytes()).unwrap_err().to_string()
}

fn in_metalink(inner: &str) -> String {
    format!("<metalink xmlns=\"{NAMESPACE}\">\n{inner}\n</metalink>")
}

#[test]
fn other_documents_are_named() {
    for (text, expected) in [
        ("", "this is not a Metalink: it has no XML element"),
        ("{\"error\": 404}", "this is not a Metalink: it begins with text"),
        ("<html><body>Gone</body></html>", "its first element is <html>"),
        ("<!DOCTYPE html><html></html>", "a document type (DOCTYPE) is refused"),
        ("<metalink xmlns='urn:other'/>", "its first element is <metalink>"),
        ("<", "it is not XML"),
    ] {
        assert!(problem(text).contains(expected), "{text}: {}", problem(text));
    }
}

#[test]
fn places_are_named() {
    let error = parse(b"<metalink>\n<file name='a'>\n</flie></metalink>").unwrap_err();
    assert_eq!((error.line, error.element), (3, "file"));
    // Also where the parser itself does not tell.
    for wrong in ["<size a=b>1</size>", "<size>\u{0}</size>", "<size a='1' a='2'/>"] {
        let text = in_metalink(&format!("<file name=\"a\">{wrong}</file>"));
        let Err(error) = parse(text.as_bytes()) else { continue };
        let at = text.find(wrong).unwrap() as u64;
        assert!((at..=at + wrong.len() as u64).contains(&error.byte), "{error}");
    }
    assert!(matches!(error.problem, Problem::Xml(_)));
    assert!(problem("<metalink><file name='a'><size>1").contains("it ends in the middle"));
    assert!(problem("<metalink><file name='a").contains("it ends in the middle"));
}

/// Why the only file of a document is refused.
fn refusal(text: &str) -> String {
    parse(text.as_bytes()).unwrap().refused[0].why.to_string()
}

/// Of three files one had a name that was refused, and the other two were lost with it.
#[test]
fn a_file_that_is_refused_costs_no_other() {
    let urls = "<url>x</url>".repeat(20_000);
    for bad in [
        "<file name='../evil'><size>1</size><hash type='md5'>x</hash></file>".to_owned(),
        "<file><url>http://a/</url></file>".to_owned(),
        "<file name='a&nbsp;b'><size>1</size></file>".to_owned(),
        format!("<file name='many'>{urls}</file>"),
    ] {
        let good = |name: &str| format!("<file name='{name}'><size>7</size></file>");
        let text = in_metalink(&format!("{}{bad}{}", good("first"), good("last")));
        let metalink = parse(text.as_bytes()).unwrap();
        let names: Vec<_> = metalink.files.iter().map(|file| file.name.as_str()).collect();
        assert_eq!((names, metalink.refused.len()), (vec!["first", "last"], 1));
        assert!(metalink.files.iter().all(|file| file.size_bytes == Some(7)));
    }
}

#[test]
fn an_entity_that_is_not_known_spoils_its_element_alone() {
    let text = in_metalink(
        "<copyright>&copy; x</copyright><file name='a'><description>&nbsp;</description>\
         <url>http://a/?x=1&copy;=2</url><hash type='md5'>&what;</hash>\
         <hash type='sha-1&what;'>ed64</hash></file>",
    );
    let metalink = parse(text.as_bytes()).unwrap();
    let file = &metalink.files[0];
    assert_eq!(file.mirrors[0].url.as_str(), "http://a/?x=1&copy;=2");
    assert!(file.unusable_digest().is_some() && file.skipped.len() == 2, "{file:?}");
}

#[test]
fn other_encodings_are_read() {
    let text = |encoding: &str| {
        format!(
            "<?xml version=\"1.0\" encoding='{encoding}'?>\n<metalink xmlns=\"{NAMESPACE}\">\
             <file name=\"Größe €.h5\"><size>3</size></file></metalink>"
        )
    };
    let read = |bytes: &[u8]| {
        // However few bytes come at a time.
        let all = parse(bytes).unwrap();
        let slow = BufReader::with_capacity(3, bytes);
        assert_eq!(parse_with(slow, Options::default()).unwrap(), all);
        assert_eq!(all.files[0].size_bytes, Some(3));
        all.files[0].name.as_str().to_owned()
    };
    let single = |encoding: &str, euro: u8| -> Vec<u8> {
        let byte = |c: char| if c == '€' { euro } else { u8::try_from(u32::from(c)).unwrap() };
        text(encoding).chars().map(byte).collect()
    };
    assert_eq!(read(&single("ISO-8859-15", 0xa4)), "Größe €.h5");
    assert_eq!(read(&single("windows-1252", 0x80)), "Größe €.h5");
    assert_eq!(read(&single("ISO-8859-1", 0xa4)), "Größe ¤.h5");
    let wide = |big: bool, mark: bool, text: &str| -> Vec<u8> {
        let mark = if mark { "\u{feff}" } else { "" };
        let units = mark.encode_utf16().chain(text.encode_utf16()).collect::<Vec<u16>>();
        let bytes = |unit: &u16| if big { unit.to_be_bytes() } else { unit.to_le_bytes() };
        units.iter().flat_map(bytes).collect()
    };
    for (big, mark) in [(true, true), (false, true), (true, false), (false, false)] {
        assert_eq!(read(&wide(big, mark, &text("UTF-16"))), "Größe €.h5");
        let far = text("UTF-16").replace('€', "\u{1f4be}");
        assert_eq!(read(&wide(big, mark, &far)), "Größe \u{1f4be}.h5");
    }
    let marked = format!("\u{feff}{}", text("utf-8"));
    assert_eq!(read(marked.as_bytes()), "Größe €.h5");
    let error = parse(text("EBCDIC-US").as_bytes()).unwrap_err();
    assert_eq!(error.problem, Problem::Encoding("EBCDIC-US".to_owned()));
    // Said to be UTF-8, but a name is not: that file alone.
    let bytes = in_metalink("<file name='caf~'/><file name='b'/>").into_bytes();
    let bytes: Vec<u8> = bytes.iter().map(|b| if *b == b'~' { 0xe9 } else { *b }).collect();
    match parse(&bytes) {
        Ok(metalink) => assert_eq!(metalink.files.last().unwrap().name.as_str(), "b"),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn dangerous_names_are_refused() {
    for name in ["../x", "/etc/passwd", "a/../../b", "", "a&#10;b", "a&#27;[2J", "a&#0;", "a&what;"]
    {
        let text = in_metalink(&format!("<file name=\"{name}\"></file>"));
        let metalink = parse(text.as_bytes()).unwrap();
        let [refused] = &metalink.refused[..] else { panic!("{name}: {metalink:?}") };
        assert_eq!((refused.line, metalink.files.len()), (2, 0), "{name}");
        let said = format!("{}{}", refused.name, refused.why);
        assert!(!said.contains(['\n', '\x1b']), "{said}");
    }
    let metalink = parse(in_metalink("<file/>").as_bytes()).unwrap();
    assert_eq!(metalink.refused[0].why, RefusedWhy::NoName);
}

#[test]
fn bombs_are_refused() {
    let entities = "<!DOCTYPE x [<!ENTITY a 'ha'><!ENTITY b '&a;&a;'>]><metalink>&b;</metalink>";
    assert!(problem(entities).contains("DOCTYPE"));
    assert!(problem(&in_metalink(&"<a>".repeat(1_000_000))).contains("more than 32 elements"));
    let long = format!("<file name=\"{}\"/>", "x".repeat(2 << 20));
    assert!(problem(&in_metalink(&long)).contains("more than 1048576 bytes"));
    let comment = format!("<!-- {} -->", "x".repeat(2 << 20));
    assert!(problem(&in_metalink(&comment)).contains("more than 1048576 bytes"));
    let many: String = (0..1000).map(|i| format!(" a{i}='x'")).collect();
    assert!(problem(&in_metalink(&format!("<file{many}/>"))).contains("64 attributes"));
    let namespaces: String = (0..1000).map(|i| format!(" xmlns:a{i}='x'")).collect();
    assert!(parse(in_metalink(&format!("<file{namespaces}/>")).as_bytes()).is_err());
    let text = format!("<file name='a'><url>{}</url></file>", "x".repeat(70_000));
    assert!(problem(&in_metalink(&text)).contains("more than 65536 bytes"));
    let urls = "<url>x</url>".repeat(20_000);
    let text = in_metalink(&format!("<file name='a'>{urls}</file>"));
    assert!(refusal(&text).contains("10000 addresses"));
    let hashes = "<hash type='md5'/>".repeat(20_000);
    let text = in_metalink(&format!("<file name='a'>{hashes}</file>"));
    assert!(refusal(&text).contains("10000 addresses and skipped"));

    let small = Options { document_bytes_max: 100, ..Options::default() };
    let error = parse_with(RUCIO.as_bytes(), small).unwrap_err();
    assert_eq!(error.problem, Problem::Limit(Limit::DocumentBytes(100)));
    let few = Options { files_max: 1, ..Options::default() };
    let text = in_metalink("<file name='a'/><file name='b'/>");
    let error = parse_with(text.as_bytes(), few).unwrap_err();
    assert_eq!(error.problem, Problem::Limit(Limit::Files(1)));
}

#[test]
fn a_broken_digest_does_not_pass_for_none() {
    let whole = "<hash type='md5'>ed645d9433d30e458d6f757749206747</hash>";
    for (inner, is_broken) in [
        ("<hash type='sha-256'>1304d4bf</hash>".to_owned(), true),
        ("<hash type='md5'>xyz</hash>".to_owned(), true),
        ("<hash type='md6'>1304d4bf</hash>".to_owned(), false),
        (format!("<hash type='sha-256'>1304d4bf</hash>{whole}"), false),
        (String::new(), false),
    ] {
        let text = in_metalink(&format!("<file name='a'>{inner}</file>"));
        let metalink = parse(text.as_bytes()).unwrap();
        assert_eq!(metalink.files[0].unusable_digest().is_some(), is_broken, "{inner}");
    }
}

#[test]
fn wrong_pieces_and_sizes_are_skipped_with_the_reason() {
    let hash = "<hash>ed645d9433d30e458d6f757749206747</hash>";
    for (inner, expected) in [
        (format!("<pieces length='10' type='md5'>{hash}</pieces><size>11</size>"), "need 2 piece"),
        (format!("<pieces length='0' type='md5'>{hash}</pieces>"), "length is 0"),
        (format!("<pieces length='x' type='md5'>{hash}</pieces>"), "length is not a number"),
        (format!("<pieces length='1' type='md6'>{hash}</pieces>"), "unknown digest"),
        ("<pieces length='1' type='md5'><hash>x</hash></pieces>".to_owned(), "no hexadecimal"),
        (
            format!("<pieces length='1' type='md5'>{}</pieces>", hash.replace('>', " piece='1'>")),
            "out of order",
        ),
        ("<size>None</size>".to_owned(), "size: it is not a number"),
        ("<size>-1</size>".to_owned(), "size: it is not a number"),
    ] {
        // The end tag got the attribute as well.
        let inner = inner.replace("</hash piece='1'>", "</hash>");
        let text = in_metalink(&format!("<file name='a'>{inner}</file>"));
        let metalink = parse(text.as_bytes()).unwrap();
        let file = &metalink.files[0];
        assert_eq!(file.pieces, None);
        assert_eq!(file.unusable_pieces().is_some(), inner.contains("<pieces"));
        let reasons: Vec<_> = file.skipped.iter().map(|s| s.reason.to_string()).collect();
        assert!(reasons.len() == 1 && reasons[0].contains(expected), "{inner}: {reasons:?}");
    }
}

/// Makes a Metalink of `files` files without ever holding it.
struct Endless {
    files: u64,
    made: u64,
    rest: Vec<u8>,
}

impl Read for Endless {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        while self.rest.is_empty() && self.made <= self.files + 1 {
            let text = match self.made {
                0 => format!("<metalink xmlns=\"{NAMESPACE}\">"),
                n if n <= self.files => format!(
                    "<file name=\"d{}/f{n}\"><size>{n}</size><hash type=\"adler32\">{n:08x}</hash>\
                     <url priority=\"1\">https://a.example/{n}</url>\
                     <url priority=\"2\">root://b.example/{n}</url></file>\n",
                    n % 100
                ),
                _ => "</metalink>".to_owned(),
            };
            self.rest = text.into_bytes();
            self.made += 1;
        }
        let taken = self.rest.len().min(out.len());
        out[..taken].copy_from_slice(&self.rest[..taken]);
        self.rest.drain(..taken);
        Ok(taken)
    }
}

#[test]
fn a_hundred_thousand_files_stream() {
    let input = Endless { files: 100_000, made: 0, rest: Vec::new() };
    let mut reader = Reader::new(BufReader::new(input), Options::default());
    let mut sizes = 0;
    for file in reader.by_ref() {
        let file = file.unwrap();
        assert_eq!((file.mirrors.len(), file.skipped.len()), (1, 1));
        sizes += file.size_bytes.unwrap();
    }
    assert_eq!(sizes, 100_000 * 100_001 / 2);
    assert!(reader.next().is_none());
}

#[test]
fn media_types_and_names_are_known() {
    assert!(is_media_type("application/metalink4+xml; charset=utf-8"));
    assert!(is_media_type("Application/Metalink+XML"));
    assert!(!is_media_type("application/xml"));
    assert!(is_file_name("x/y.META4") && is_file_name("a.metalink"));
    assert!(!is_file_name("meta4") && !is_file_name("a.meta4.gz"));
}

fn any_text() -> impl Strategy<Value = String> {
    "[a-zA-Z0-9<>&\"' ;é#/._:-]{1,20}".prop_map(|text| text.trim().to_owned())
}

fn any_url() -> impl Strategy<Value = Url> {
    ("[a-z]{1,8}", "[a-zA-Z0-9<>&\"';=?%é#._/-]{0,20}").prop_filter_map("no URL", |(host, path)| {
        mirror_url_for(&format!("https://{host}.example/{path}"))
    })
}

fn mirror_url_for(text: &str) -> Option<Url> {
    crate::mirror_url(text, None).ok()
}

fn any_name() -> impl Strategy<Value = SafePath> {
    "[a-z<>&\"' é/.]{1,12}".prop_filter_map("unsafe", |name| SafePath::new(&name).ok())
}

prop_compose! {
    fn any_mirror()(
        url in any_url(), priority in prop_oneof![1..5u32, Just(PRIORITY_WORST)],
        location in prop::option::of(Just(*b"fr")), name in prop::option::of("[A-Z<&\"]{3,9}"),
    ) -> Mirror {
        let name = name.filter(|_| location.is_none()).map(String::into_boxed_str);
        Mirror { url, priority, location, name }
    }
}

prop_compose! {
    fn any_file()(
        name in any_name(), size in 0..5000u64, length in 100..1000u64, pieces: bool, known: bool,
        digests in prop::collection::btree_set(0..7usize, 0..3), identity in prop::option::of(any_text()),
        mut mirrors in prop::collection::vec(any_mirror(), 0..4), torrent in prop::option::of(any_url()),
        part in prop::option::of((any_url(), 0..5000u64)),
    ) -> File {
        mirrors.sort_by_key(|mirror| mirror.priority);
        let mut seen = std::collections::HashSet::new();
        mirrors.retain(|mirror| seen.insert(mirror.url.clone()));
        let packed = vec![7; size.div_ceil(length) as usize * 32];
        File {
            size_bytes: Some(size).filter(|_| known),
            digests: digests.iter().map(|i| Hasher::digest(Algorithm::ALL[*i], b"x")).collect(),
            pieces: pieces.then(|| Pieces::new(Algorithm::Sha256, length, packed).unwrap()),
            mirrors,
            held: part.filter(|(_, end)| *end < size).into_iter().map(|(url, end)| Held {
                url, ranges: [Range::new(end / 2, end / 2 + 1), Range::new(end, size)].into_iter().collect(),
                priority: 3,
            }).collect(),
            metaurls: torrent.into_iter().map(|url| Metaurl {
                url, media_type: "torrent".to_owned(), priority: 1, name: Some(name.clone()),
            }).collect(),
            identity: identity.filter(|text| !text.is_empty()),
            ..File::new(name)
        }
    }
}

#[test]
fn what_has_a_part_alone_is_read_and_others_pass_it_over() {
    let own = format!("xmlns:s=\"{NAMESPACE_OWN}\"");
    let of = |ranges: &str| {
        let inner = format!(
            "<file name=\"a\"><size>1000</size><url>http://o.example/a</url>\
             <s:held {own} priority=\"2\" ranges=\"{ranges}\">http://r.example/depot/1</s:held></file>"
        );
        parse(in_metalink(&inner).as_bytes()).unwrap().files.remove(0)
    };
    let file = of("0-99, 900-999,100-199");
    let held: Vec<_> = file.held[0].ranges.iter().map(|range| (range.start, range.end)).collect();
    assert_eq!(held, [(0, 200), (900, 1000)]);
    assert_eq!((file.held[0].priority, file.held[0].url.as_str()), (2, "http://r.example/depot/1"));
    // It is no mirror: whoever takes it for one finds a part of the file missing.
    assert_eq!(file.mirrors.len(), 1);
    for wrong in ["", "5", "9-5", "-5", "0-1000", "0-99,", "a-b", "0-+9", "0-18446744073709551615"]
    {
        let file = of(wrong);
        assert!(file.held.is_empty(), "{wrong}");
        assert_eq!(file.skipped[0].reason, SkipReason::Held, "{wrong}");
    }
    // In Metalink's own namespace there is no such element.
    let inner = "<file name=\"a\"><held ranges=\"0-9\">http://r.example/</held></file>";
    assert!(parse(in_metalink(inner).as_bytes()).unwrap().files[0].held.is_empty());
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        files in prop::collection::vec(any_file(), 0..4),
        generator in prop::option::of(any_text()),
        origin in prop::option::of((any_url(), any::<bool>())),
    ) {
        let origin = origin.map(|(url, dynamic)| Origin { url, dynamic });
        let metalink = Metalink { header: Header { generator, origin }, files, refused: Vec::new() };
        let text = to_string(&metalink);
        prop_assert_eq!(parse(text.as_bytes()), Ok(metalink), "{}", text);
    }

    #[test]
    fn damaged_documents_never_panic(at in 0..RUCIO.len(), bytes in prop::collection::vec(any::<u8>(), 0..6), cut in 0..6usize) {
        let mut text = RUCIO.as_bytes().to_vec();
        let end = (at + cut).min(text.len());
        text.splice(at..end, bytes);
        if let Err(error) = parse(&text) {
            prop_assert!(error.line <= 20 && error.byte <= 3 * text.len() as u64);
        }
    }

    /// However the input is cut into reads, the result is the same.
    #[test]
    fn buffer_size_does_not_matter(capacity in 1..40usize) {
        let input = BufReader::with_capacity(capacity, RUCIO.as_bytes());
        prop_assert_eq!(parse_with(input, Options::default()), parse(RUCIO.as_bytes()));
    }
}
