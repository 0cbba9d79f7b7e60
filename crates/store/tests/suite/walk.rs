//! The walk on real trees, against a naive one.

use std::convert::Infallible;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use swath_model::index::{Absence, Index, Kind, Mtime};
use swath_store::tree::{Filter, Root, WalkOptions, walk};

/// Path, kind, mode and time of an entry.
type Line = (Vec<u8>, Kind, u32, Mtime);

fn walked(folder: &Path, options: &WalkOptions) -> Vec<Line> {
    let mut index = Index::new();
    let root = Root::open(folder).unwrap();
    let unnameable = walk(&root, options, |entry| {
        index.push(entry).unwrap();
        Ok::<_, Infallible>(())
    })
    .unwrap();
    assert_eq!(unnameable.count, 0);
    index.complete();
    let mut lines = Vec::new();
    let mut cursor = index.cursor();
    while let Some(item) = cursor.next() {
        let entry = item.entry;
        lines.push((item.path.to_vec(), entry.kind, entry.mode, entry.mtime));
    }
    lines
}

/// The same by the simplest means.
fn naive(folder: &Path, below: &[u8], out: &mut Vec<Line>) {
    let mut names: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort_by(|a, b| a.as_bytes().cmp(b.as_bytes()));
    for name in names {
        let at = folder.join(&name);
        let meta = at.symlink_metadata().unwrap();
        let mut path = below.to_vec();
        path.extend_from_slice(name.as_bytes());
        let kind = if meta.is_dir() {
            Kind::Folder
        } else if meta.is_symlink() {
            Kind::Symlink(fs::read_link(&at).unwrap().as_os_str().as_bytes().to_vec())
        } else if meta.is_file() {
            Kind::File { size_bytes: meta.len(), extents: None }
        } else {
            out.push((path, Kind::Absent(Absence::Special), 0, Mtime::default()));
            continue;
        };
        let mtime = Mtime { seconds: meta.mtime(), nanoseconds: meta.mtime_nsec() as u32 };
        out.push((path.clone(), kind, meta.mode() & 0o7777, mtime));
        if meta.is_dir() {
            path.push(b'/');
            naive(&at, &path, out);
        }
    }
}

fn naively(folder: &Path) -> Vec<Line> {
    let mut lines = Vec::new();
    naive(folder, b"", &mut lines);
    lines
}

fn with(threads: usize) -> WalkOptions {
    WalkOptions { threads, ..WalkOptions::default() }
}

/// A tree of everything, the same for the same seed.
fn grow(folder: &Path, rng: &mut fastrand::Rng, depth: usize) {
    for _ in 0..rng.usize(0..14) {
        let mut name: Vec<u8> = (0..rng.usize(1..12)).map(|_| rng.u8(b' '..=b'~')).collect();
        name.retain(|&byte| byte != b'/');
        if rng.u8(0..9) == 0 {
            name.push(0xff);
        }
        if name.is_empty() || name == b"." || name == b".." {
            continue;
        }
        let at = folder.join(OsStr::from_bytes(&name));
        if at.symlink_metadata().is_ok() {
            continue;
        }
        match rng.u8(0..10) {
            0..4 if depth > 0 => {
                fs::create_dir(&at).unwrap();
                grow(&at, rng, depth - 1);
            }
            4 => symlink("../some where/\u{e9}", &at).unwrap(),
            _ => {
                fs::write(&at, vec![7; rng.usize(0..300)]).unwrap();
                let mode = *rng.choice(&[0o644, 0o600, 0o755, 0o4755]).unwrap();
                fs::set_permissions(&at, fs::Permissions::from_mode(mode)).unwrap();
            }
        }
    }
}

#[test]
fn random_trees_are_walked_as_by_the_simplest_means() {
    for seed in 0..40 {
        let folder = tempfile::tempdir().unwrap();
        let mut rng = fastrand::Rng::with_seed(seed);
        grow(folder.path(), &mut rng, 4);
        let expected = naively(folder.path());
        for threads in [0, 1, 4] {
            assert_eq!(walked(folder.path(), &with(threads)), expected, "seed {seed}, {threads}");
        }
    }
}

#[test]
fn a_folder_of_many_names_is_walked_in_parts() {
    let folder = tempfile::tempdir().unwrap();
    for number in 0..10_001 {
        let name = format!("{:05}", (number * 7919) % 10_001);
        match number % 500 {
            0 => fs::create_dir_all(folder.path().join(name).join("in")).unwrap(),
            _ => fs::write(folder.path().join(name), b"").unwrap(),
        }
    }
    let expected = naively(folder.path());
    assert_eq!(expected.len(), 10_022);
    for threads in [0, 4] {
        assert_eq!(walked(folder.path(), &with(threads)), expected);
    }
}

#[test]
fn a_tree_deeper_than_any_path_is_walked() {
    let folder = tempfile::tempdir().unwrap();
    // Made by a program that goes in step by step; its path is far longer than a call takes.
    let script =
        "for i in $(seq 1200); do mkdir deeper-$i && cd -P deeper-$i && : > x && mkdir z; done";
    let made = std::process::Command::new("sh")
        .args(["-c", script])
        .current_dir(folder.path())
        .status()
        .unwrap();
    assert!(made.success());
    for threads in [0, 4] {
        let lines = walked(folder.path(), &with(threads));
        assert_eq!(lines.len(), 3 * 1200);
        let longest = lines.iter().map(|line| line.0.len()).max().unwrap();
        assert!(longest > 3 * 4096, "{longest}");
        let files = lines.iter().filter(|line| matches!(line.1, Kind::File { .. })).count();
        assert_eq!(files, 1200);
    }
    let removed = std::process::Command::new("rm").arg("-rf").arg(folder.path()).status().unwrap();
    assert!(removed.success());
}

#[test]
fn files_of_several_names_are_told_once() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir(at("b")).unwrap();
    fs::write(at("b/first"), b"123").unwrap();
    fs::hard_link(at("b/first"), at("c")).unwrap();
    fs::hard_link(at("b/first"), at("d")).unwrap();
    let kinds = |options: &WalkOptions| -> Vec<Kind> {
        walked(folder.path(), options).into_iter().map(|line| line.1).collect()
    };
    let file = Kind::File { size_bytes: 3, extents: None };
    let linked = [Kind::Folder, file.clone(), Kind::HardLink(1), Kind::HardLink(1)];
    assert_eq!(kinds(&with(2)), linked);
    let apart = WalkOptions { hard_links: false, ..with(2) };
    assert_eq!(kinds(&apart), [Kind::Folder, file.clone(), file.clone(), file]);
}

#[test]
fn links_are_followed_only_below_the_root_and_never_in_circles() {
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("secret"), b"123").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir_all(at("a/b")).unwrap();
    fs::write(at("a/file"), b"12").unwrap();
    symlink("../..", at("a/b/circle")).unwrap();
    symlink("../file", at("a/b/up")).unwrap();
    symlink("a", at("l-folder")).unwrap();
    symlink(outside.path().join("secret"), at("l-out")).unwrap();
    symlink("../../../../../../../etc/passwd", at("l-up")).unwrap();
    symlink("nowhere", at("l-void")).unwrap();
    symlink("l-self", at("l-self")).unwrap();
    let options = WalkOptions { follow_links: true, ..with(3) };
    let lines = walked(folder.path(), &options);
    let told: Vec<String> = lines
        .iter()
        .map(|(path, kind, ..)| {
            let kind = match kind {
                Kind::File { size_bytes, .. } => format!("{size_bytes}"),
                Kind::Folder => "folder".to_owned(),
                Kind::Symlink(_) => "link".to_owned(),
                other => format!("{other:?}"),
            };
            format!("{} {kind}", String::from_utf8_lossy(path))
        })
        .collect();
    assert_eq!(
        told,
        [
            "a folder",
            "a/b folder",
            "a/b/circle link",
            "a/b/up 2",
            "a/file 2",
            "l-folder folder",
            "l-folder/b folder",
            "l-folder/b/circle link",
            "l-folder/b/up 2",
            "l-folder/file 2",
            "l-out link",
            "l-self link",
            "l-up link",
            "l-void link",
        ]
    );
    // Not followed, all are what they are.
    assert_eq!(walked(folder.path(), &with(3)), naively(folder.path()));
}

#[test]
fn what_is_no_file_is_named_and_holes_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let made = std::process::Command::new("mkfifo").arg(at("pipe")).status().unwrap();
    assert!(made.success());
    let socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
    let sparse = fs::File::create(at("sparse")).unwrap();
    sparse.set_len(100 << 20).unwrap();
    use std::os::unix::fs::FileExt;
    sparse.write_all_at(&[1; 5000], (10 << 20) + 100).unwrap();
    sparse.write_all_at(&[1; 5000], (30 << 20) - 100).unwrap();
    sparse.write_all_at(&[1], (100 << 20) - 1).unwrap();
    sparse.sync_all().unwrap();
    // Too small to be told, but for there being some.
    let small = fs::File::create(at("sparse-small")).unwrap();
    small.set_len(3 << 20).unwrap();
    for n in 0..12 {
        small.write_all_at(&[1; 4096], n << 18).unwrap();
    }
    small.sync_all().unwrap();
    let empty = fs::File::create(at("void")).unwrap();
    empty.set_len(5 << 20).unwrap();
    let lines = walked(folder.path(), &with(1));
    assert_eq!(lines[0].1, Kind::Absent(Absence::Special));
    assert_eq!(lines[1].1, Kind::Absent(Absence::Special));
    let extents = |kind: &Kind| match kind {
        Kind::File { size_bytes, extents } => {
            let extents = extents.iter().flatten();
            let extents: Vec<_> =
                extents.map(|extent| (extent.offset >> 20, extent.bytes >> 20)).collect();
            (size_bytes >> 20, extents)
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(extents(&lines[2].1), (100, vec![(10, 1), (29, 2), (99, 1)]));
    assert_eq!(extents(&lines[3].1), (3, vec![(0, 3)]));
    assert_eq!(extents(&lines[4].1), (5, vec![]));
    drop(socket);
}

#[test]
fn a_folder_that_is_no_folder_is_an_error() {
    let file = tempfile::NamedTempFile::new().unwrap();
    assert!(Root::open(file.path()).is_err());
    assert!(Root::open(Path::new("/nowhere at all")).is_err());
}

#[test]
fn nothing_below_a_root_is_reached_through_a_link() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("inside")).unwrap();
    fs::write(folder.path().join("inside/file"), b"1").unwrap();
    symlink("/etc", folder.path().join("etc")).unwrap();
    symlink("inside", folder.path().join("link")).unwrap();
    let root = Root::open(folder.path()).unwrap();
    assert!(root.file(b"inside/file").is_ok());
    for path in [
        &b"etc/passwd"[..],
        b"link/file",
        b"../etc/passwd",
        b"/etc/passwd",
        b"inside/../../x",
        b"etc",
        b"inside\0/file",
    ] {
        assert!(root.file(path).is_err(), "{:?}", String::from_utf8_lossy(path));
    }
}

#[test]
fn a_filter_is_as_if_the_rest_were_not_there() {
    let seed = 5;
    let mut rng = fastrand::Rng::with_seed(seed);
    let home = tempfile::tempdir().unwrap();
    grow(home.path(), &mut rng, 4);
    fs::create_dir_all(home.path().join("kept/deep/er")).unwrap();
    fs::create_dir_all(home.path().join("nothing/of/use")).unwrap();
    for path in ["kept/a.h5", "kept/deep/er/b.h5", "kept/deep/c.txt", "nothing/of/use/d.txt"] {
        fs::write(home.path().join(path), path).unwrap();
    }
    fs::hard_link(home.path().join("kept/deep/c.txt"), home.path().join("kept/deep/e.h5")).unwrap();
    let texts = |all: &[&str]| all.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
    let of = |include: &[&str], exclude: &[&str], threads| {
        let filter = Filter::new(&texts(include), &texts(exclude)).unwrap();
        walked(home.path(), &WalkOptions { filter, ..with(threads) })
    };
    let paths = |lines: &[Line]| -> Vec<String> {
        lines.iter().map(|line| String::from_utf8_lossy(&line.0).into_owned()).collect()
    };
    for threads in [0, 3] {
        let h5 = of(&["*.h5"], &[], threads);
        let expected = [
            "kept",
            "kept/a.h5",
            "kept/deep",
            "kept/deep/e.h5",
            "kept/deep/er",
            "kept/deep/er/b.h5",
        ];
        assert_eq!(paths(&h5), expected);
        assert!(
            !h5.iter().any(|line| matches!(line.1, Kind::HardLink(_))),
            "its first name is out"
        );
        assert_eq!(paths(&of(&["*.h5"], &["deep/"], threads)), ["kept", "kept/a.h5"]);
        let all = naively(home.path());
        let without = of(&[], &["kept", "/nothing/of"], threads);
        let expected: Vec<Line> = all
            .into_iter()
            .filter(|line| {
                let path = String::from_utf8_lossy(&line.0).into_owned();
                !path.split('/').any(|name| name == "kept") && !path.starts_with("nothing/of")
            })
            .collect();
        assert_eq!(without, expected);
    }
}
