//! Listings as servers write them, and hostile ones.

use proptest::prelude::*;

use super::*;

fn url(text: &str) -> Url {
    Url::parse(text).unwrap()
}

#[test]
fn properties_tell_folders_from_files() {
    let answer = |kind: &str| {
        format!(
            r#"<D:multistatus xmlns:D="DAV:" xmlns:lp1="DAV:"><D:response><D:href>/ds</D:href><D:propstat>
            <D:prop><lp1:resourcetype>{kind}</lp1:resourcetype></D:prop>
            </D:propstat></D:response></D:multistatus>"#
        )
    };
    assert_eq!(is_folder(answer("<D:collection/>").as_bytes()), Some(true));
    assert_eq!(is_folder(answer("").as_bytes()), Some(false));
    assert_eq!(is_folder(b"<html><collection/></html>"), None);
}

fn paths(listing: &Listing) -> Vec<String> {
    let shown = |entry: &Entry| {
        format!("{}{}", entry.path.as_str(), if entry.is_folder { "/" } else { "" })
    };
    listing.entries.iter().map(shown).collect()
}

#[test]
fn answers_of_webdav_servers_are_read() {
    let folder = url("https://h/ds/");
    // XRootD 5, with its doubled slash; another one, with whole addresses and other prefixes.
    let xrootd = r#"<?xml version="1.0" encoding="utf-8"?>
<D:multistatus xmlns:D="DAV:" xmlns:ns1="http://apache.org/dav/props/" xmlns:ns0="DAV:">
<D:response><D:href>/ds/</D:href><D:propstat><D:prop><lp1:resourcetype><D:collection/></lp1:resourcetype></D:prop></D:propstat></D:response>
<D:response xmlns:lp1="DAV:"><D:href>/ds//a%20b</D:href><D:propstat><D:prop><lp1:getcontentlength>12</lp1:getcontentlength><lp1:resourcetype/></D:prop><D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response>
<D:response xmlns:lp1="DAV:"><D:href>/ds//sub</D:href><D:propstat><D:prop><lp1:getcontentlength>4096</lp1:getcontentlength><lp1:resourcetype><D:collection/></lp1:resourcetype></D:prop></D:propstat></D:response>
</D:multistatus>"#;
    let listing = Listing::of_multistatus(xrootd.as_bytes(), &folder).unwrap();
    assert_eq!(paths(&listing), ["a b", "sub/"]);
    assert_eq!(listing.entries[0].size_bytes, Some(12));
    assert_eq!((&*listing.entries[1].address, listing.entries[1].size_bytes), ("sub", None));
    let other = "<multistatus xmlns='DAV:'><response><href>https://h/ds/x&amp;y</href></response>\
                 <response><href>/ds/deep/er</href></response><response><href>/other</href></response>\
                 <response><href>https://o/ds/z</href></response><response><href>/ds/%2e%2e</href></response>\
                 <response><href>/ds/a%2Fb</href></response></multistatus>";
    let listing = Listing::of_multistatus(other.as_bytes(), &folder).unwrap();
    // A proxy in front of a server makes the servers in its answers wrong.
    assert_eq!(paths(&listing), ["x&y", "deep/", "z"]);
    let refused = [("/other", Refusal::Elsewhere), ("a%2Fb", Refusal::Slash)];
    assert_eq!(listing.refused, refused.map(|(name, why)| (name.to_owned(), why)));
    for no in ["", "<html/>", "<multistatus>", "<!DOCTYPE x><multistatus/>", "x"] {
        assert_eq!(Listing::of_multistatus(no.as_bytes(), &folder), None, "{no}");
    }
}

#[test]
fn pages_of_common_servers_are_read() {
    let folder = url("http://h/data/");
    for (page, wanted) in [
        // nginx
        (
            "<html>\r\n<head><title>Index of /data/</title></head>\r\n<body>\r\n<h1>Index of /data/</h1><hr><pre><a href=\"../\">../</a>\r\n<a href=\"sub%20dir/\">sub dir/</a>  20-Nov-2026 10:00  -\r\n<a href=\"a%26b.bin\">a&amp;b.bin</a>  20-Nov-2026 10:00  123\r\n</pre><hr></body>",
            vec!["sub dir/", "a&b.bin"],
        ),
        // Apache
        (
            "<tr><th><a href=\"?C=N;O=D\">Name</a></th></tr><tr><td><a href=\"/\">Parent Directory</a></td></tr><tr><td><a href=\"run7.h5\">run7.h5</a></td></tr><a href='x/'>x/</a>",
            vec!["run7.h5", "x/"],
        ),
        // Caddy, and others that begin with a dot
        (
            "<a href=\"./k/\"><span>k</span></a> <a href=\"./k2.bin\">k2.bin</a><script>'<a href=\"no\">'</script><!-- <a href=\"no\"> -->",
            vec!["k/", "k2.bin"],
        ),
        // Whole paths, other servers, mails, fragments, links aside, each once
        (
            "<A HREF=/data/w.bin#top>w</A><a href=/other/f>f</a><a href=http://other/data/f>f</a><a href=mailto:a@b>m</a><a href=#x>x</a><a href=w.bin>again</a><a href=deep/er/f.bin>f</a><a name=n>n</a>",
            vec!["w.bin", "deep/er/f.bin"],
        ),
        ("<base href=\"/data/v2/\"><a href=f>f</a>", vec!["v2/f"]),
        (
            "<a href=\"naïve.txt\">n</a><a href=na%C3%AFve2.txt>n</a>",
            vec!["naïve.txt", "naïve2.txt"],
        ),
        ("", vec![]),
    ] {
        let listing = Listing::of_page(page.as_bytes(), &folder);
        assert_eq!(paths(&listing), wanted, "{page}");
        assert!(listing.refused.is_empty(), "{:?}", listing.refused);
    }
    let listing = Listing::of_page(b"<a href=a%26b.bin>x</a>", &folder);
    assert_eq!(listing.entries[0].address, "a%26b.bin");
}

#[test]
fn names_that_lead_elsewhere_or_deceive_are_refused_and_named() {
    let folder = url("http://h/data/");
    for (page, name) in [
        ("<a href=\"..%2f..%2fetc%2fpasswd\">x</a>", "..%2f..%2fetc%2fpasswd"),
        ("<a href=\"a%00b\">x</a>", "a%00b"),
        ("<a href=\"a%E2%80%AEtxt.exe\">x</a>", "a%E2%80%AEtxt.exe"),
        ("<a href=\"a%0Ab\">x</a>", "a%0Ab"),
        ("<a href=\"a%FFb\">x</a>", "a%FFb"),
        ("<a href=\"a//b\">x</a>", "a//b"),
    ] {
        let listing = Listing::of_page(page.as_bytes(), &folder);
        assert!(listing.entries.is_empty(), "{page}: {:?}", listing.entries);
        assert_eq!(listing.refused[0].0, name, "{page}");
    }
    // What the address itself leads up to is not in the folder.
    for page in ["<a href=\"%2e%2e/x\">x</a>", "<a href=\"../x\">", "<a href=\"a/../../x\">"] {
        let listing = Listing::of_page(page.as_bytes(), &folder);
        assert_eq!(listing, Listing::default(), "{page}");
    }
}

#[test]
fn buckets_are_read_page_by_page() {
    let asked = url("https://s3.example/b?list-type=2&prefix=run7%2F");
    let list = |more: &str| {
        format!(
            "<?xml version=\"1.0\"?><ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>b</Name><Prefix>run7/</Prefix>{more}\
             <Contents><Key>run7/</Key><Size>0</Size></Contents>\
             <Contents><Key>run7/a &amp; b.bin</Key><Size>12</Size></Contents>\
             <Contents><Key>run7/x/y.bin</Key><Size>3</Size></Contents>\
             <Contents><Key>run7/x/</Key><Size>0</Size></Contents>\
             <Contents><Key>run7/../up</Key><Size>3</Size></Contents>\
             </ListBucketResult>"
        )
    };
    let read = |more: &str, asked: &Url| {
        Listing::of_bucket(list(more).as_bytes(), asked, "run7/").unwrap()
    };
    let listing = read("<IsTruncated>false</IsTruncated>", &asked);
    assert_eq!(paths(&listing), ["a & b.bin", "x/y.bin"]);
    assert_eq!(listing.entries[0].size_bytes, Some(12));
    assert_eq!(listing.entries[0].address, "a%20%26%20b.bin");
    assert_eq!((listing.refused.len(), &listing.next), (1, &None));
    let more = "<IsTruncated>true</IsTruncated>";
    let query =
        |more: &str, asked: &Url| read(more, asked).next.unwrap().query().unwrap().to_owned();
    let by_token = format!("{more}<NextContinuationToken>t/1=</NextContinuationToken>");
    assert_eq!(query(&by_token, &asked), "list-type=2&prefix=run7%2F&continuation-token=t%2F1%3D");
    assert!(query(more, &asked).contains("start-after=run7%2F..%2Fup"));
    let first = url("https://s3.example/b?prefix=run7/&marker=old");
    assert_eq!(query(more, &first), "prefix=run7%2F&marker=run7%2F..%2Fup");
    for odd in ["", "<html></html>", "<ListBucketResult>", "<!DOCTYPE x><ListBucketResult/>"] {
        let read = Listing::of_bucket(odd.as_bytes(), &asked, "");
        assert!(read.is_none_or(|it| it.entries.is_empty()), "{odd}");
    }
}

proptest! {
    #[test]
    fn nothing_that_is_listed_leaves_its_folder(page in ".{0,200}", bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let folder = url("http://h/data/");
        for page in [page.as_bytes(), &bytes, format!("<a href=\"{page}\">").as_bytes()] {
            for entry in Listing::of_page(page, &folder).entries {
                let url = folder.join(&format!("./{}", entry.address)).unwrap();
                prop_assert!(url.path().starts_with("/data/"), "{url}");
                prop_assert!(!entry.path.as_str().split('/').any(|part| part == ".."));
            }
            let _ = Listing::of_bucket(page, &folder, "");
        }
    }
}

#[test]
fn names_that_a_server_does_not_escape_are_read_as_they_are() {
    // XRootD and nginx's module of others do not, RFC 4918 notwithstanding.
    let folder = url("https://h/ds/");
    let answer = |names: &[&str]| {
        let of = |name: &&str| format!("<response><href>/ds/{name}</href></response>");
        let responses: String = names.iter().map(of).collect();
        let answer = format!("<multistatus xmlns='DAV:'>{responses}</multistatus>");
        Listing::of_multistatus(answer.as_bytes(), &folder).unwrap()
    };
    let listing = answer(&["100%.bin", "%41.bin", "h#x.bin", "q?x.bin", "a b", "née"]);
    assert_eq!(paths(&listing), ["100%.bin", "%41.bin", "h#x.bin", "q?x.bin", "a b", "née"]);
    let addresses: Vec<&str> = listing.entries.iter().map(|it| &*it.address).collect();
    assert_eq!(
        addresses,
        ["100%25.bin", "%2541.bin", "h%23x.bin", "q%3Fx.bin", "a%20b", "n%C3%A9e"]
    );
    assert_eq!(paths(&answer(&["%41.bin", "h%23x.bin", "née"])), ["A.bin", "h#x.bin", "née"]);

    let page = |names: &[&str]| {
        let of = |name: &&str| format!("<a href='/ds//{name}'>{name}</a>");
        let page: String = names.iter().map(of).collect();
        Listing::of_page(page.as_bytes(), &folder)
    };
    let listing = page(&["h#x.bin", "q?x.bin", "%41.bin", "run7:a.bin"]);
    assert_eq!(paths(&listing), ["h#x.bin", "q?x.bin", "%41.bin", "run7:a.bin"]);
    assert!(listing.refused.is_empty());
    assert_eq!(paths(&page(&["%41.bin"])), ["A.bin"]);
}

#[test]
fn what_a_page_shows_in_its_folder_and_cannot_be_taken_is_named() {
    let folder = url("http://h/data/");
    let of = |page: &str| Listing::of_page(page.as_bytes(), &folder);
    // Links that sort, and other views of an entry, are no entries.
    let sorted = of("<a href='?C=N'>N</a><a href='./?C=M'>M</a><a href='a.c'>a.c</a>\
                     <a href='a.c?view=log'>log</a><a href='/other?x'>o</a>");
    assert_eq!(paths(&sorted), ["a.c"]);
    assert!(sorted.refused.is_empty());
    let query = of("<a href='a.c'>a.c</a><a href='get.cgi?id=7'>seven</a>");
    assert_eq!(query.refused, [("get.cgi?id=7".to_owned(), Refusal::Query)]);
    // Entries of another server: if there are no others, they are what the page is about.
    let far = "<a href='http://h:81/data/x'>x</a><a href='https://elsewhere/'>made by</a>";
    assert_eq!(of(far).refused, [("h/data/x".to_owned(), Refusal::Server)]);
    assert!(of(&format!("{far}<a href=y>y</a>")).refused.is_empty());
}

#[test]
fn links_in_other_letters_and_by_http_are_in_the_folder() {
    let folder = url("https://h/mus%C3%A9e/[Ref]/");
    for link in [
        "http://h/mus%c3%a9e/%5BRef%5D/a",
        "HTTPS://H/musée/%5bRef%5d/a",
        "//h:443/mus%C3%A9e/[Ref]/%61",
        "a",
    ] {
        let listing = Listing::of_page(format!("<a href='{link}'>x</a>").as_bytes(), &folder);
        assert_eq!(paths(&listing), ["a"], "{link}");
    }
}

#[test]
fn a_base_aside_is_where_the_entries_are() {
    let folder = url("http://h/index.php/data/");
    let of = |page: &str| Listing::of_page(page.as_bytes(), &folder);
    let aside = of("<base href='/files/data/'><base href='/no/'><a href=f>f</a><a href=/o>o</a>");
    assert_eq!(paths(&aside), ["f"]);
    assert_eq!(aside.base, Some(url("http://h/files/data/")));
    // A base above it is only what links count from.
    let above = of("<base href='/'><a href='index.php/data/f'>f</a><a href=about>a</a>");
    assert_eq!((paths(&above), above.base), (vec!["f".to_owned()], None));
    assert_eq!(of("<base href='http://o/x/'><a href=f>f</a>"), Listing::default());
}

#[test]
fn pages_show_whether_they_mark_folders() {
    let folder = url("http://h/data/sub/");
    for (page, marks) in [
        ("<a href='../'>up</a><a href=a>a</a>", true),
        ("<a href='/data/'>up</a><a href=a>a</a>", true),
        ("<a href='b/'>b</a><a href=a>a</a>", true),
        ("<a href='/'>~</a><a href='/data'>..</a><a href='/data/sub/a'>a</a>", false),
        ("<a href=a>a</a>", false),
    ] {
        assert_eq!(Listing::of_page(page.as_bytes(), &folder).marks_folders, marks, "{page}");
    }
}

/// A tag with millions of attributes took a hundred times its length.
#[test]
fn pages_that_are_made_to_fill_the_memory_are_read_in_little() {
    let folder = url("http://h/data/");
    let attributes: String = (0..20_000).map(|number| format!(" a{number}=''")).collect();
    let page = format!("<a{attributes} href=f href=g>f</a{attributes} href=h><base{attributes}>");
    assert_eq!(paths(&Listing::of_page(page.as_bytes(), &folder)), ["f"]);
    // Of bases the first one counts, so that they do not grow.
    let page = "<base href='b/'>".repeat(5_000) + "<a href=f>f</a>";
    assert_eq!(paths(&Listing::of_page(page.as_bytes(), &folder)), ["b/f"]);
    let page = format!("<a href='{}'>x</a><a href=f>f</a>", "y".repeat(20_000));
    let listing = Listing::of_page(page.as_bytes(), &folder);
    assert_eq!((paths(&listing), listing.is_cut), (vec!["f".to_owned()], true));
}
