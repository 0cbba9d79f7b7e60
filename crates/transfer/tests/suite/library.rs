//! What a program that names no other crate of swath's can do: set pieces, tell errors apart.

use swath_transfer::{
    Algorithm, CommitError, Digest, Engine, EngineOptions, GetError, Pieces, Request, Url,
    WriteError,
};

#[tokio::test]
async fn errors_are_told_apart_by_their_types() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data.bin");
    std::fs::write(&path, "something else").unwrap();
    let engine = Engine::start(EngineOptions::default()).unwrap();
    let request = Request::to_file(&path).url("http://127.0.0.1:1/data.bin").unwrap();
    match engine.get(request).await {
        // Whether it is the same file nobody could say.
        Err(GetError::Present { path: taken, .. }) => assert_eq!(taken, path),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_full_disk_is_a_full_disk_for_the_data_and_for_the_journal() {
    // A journal that found no space was reported as any other failed write.
    let full = || std::io::ErrorKind::StorageFull.into();
    let path = std::path::PathBuf::from("data.bin");
    let data = WriteError::NoSpace { path: path.clone(), offset: 5, source: full() };
    let journal = CommitError::NoSpace { path: path.clone(), source: full() };
    for error in [GetError::from(data), GetError::from(journal)] {
        assert!(matches!(&error, GetError::DiskFull { path: of } if *of == path), "{error:?}");
        assert_eq!(error.to_string(), "the disk is full");
    }
    let source = std::io::ErrorKind::InvalidData.into();
    let error = GetError::from(WriteError::Io { path, offset: 5, source });
    assert_eq!(error.with_reasons(), "cannot write to data.bin at byte 5: invalid data");
}

#[test]
fn a_request_can_be_filled_by_hand() {
    let digest = Digest::new(Algorithm::Sha256, &[7; 32]).unwrap();
    let mut request = Request::to_file("data.bin").url("http://one.example/data.bin").unwrap();
    request.digests.push(digest);
    request.pieces = Pieces::new(Algorithm::Sha256, 4, vec![7; 32]).ok();
    request.size_bytes = Some(4);
    assert!(request.pieces.is_some());
    assert_eq!(request.mirrors[0].url, Url::parse("http://one.example/data.bin").unwrap());
}
