//! Any bytes as the page of a folder, or as the list of a bucket: no panic, and nothing that is listed
//! leaves its folder.
#![no_main]

use libfuzzer_sys::fuzz_target;
use swath_formats::listing::Listing;
use url::Url;

fuzz_target!(|bytes: &[u8]| {
    let folder = Url::parse("http://h/data/").unwrap();
    for entry in Listing::of_page(bytes, &folder).entries {
        let url = folder.join(&format!("./{}", entry.address)).unwrap();
        assert!(url.path().starts_with("/data/"), "{url}");
        assert!(entry.path.as_str().split('/').all(|part| !matches!(part, "" | "." | "..")));
    }
    let _ = Listing::of_multistatus(bytes, &folder);
    if let Some(listing) = Listing::of_bucket(bytes, &folder, "") {
        assert!(listing.entries.iter().all(|it| !it.is_folder));
    }
});
