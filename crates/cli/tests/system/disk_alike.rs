//! A disk that takes different names for one (exFAT, which ignores case): needs root, exfatprogs and
//! exfat-fuse.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use swath_netlab::faulty::{Content, Server};

use crate::support::Home;
use crate::support::trees::bytes;

/// A disk that ignores case, gone when dropped.
struct Disk {
    device: String,
    at: PathBuf,
}

impl Disk {
    /// `None`, with a message, where there cannot be one.
    fn mount(home: &Home) -> Option<Disk> {
        let (image, at) = (home.path("image"), home.path("disk"));
        fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
        fs::create_dir(&at).unwrap();
        let done = |program: &str, args: &[&Path]| {
            let output = Command::new(program).args(args).stderr(Stdio::null()).output().ok()?;
            output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
        };
        let mounted = done("mkfs.exfat", &[&image]).and_then(|_| {
            let device = done("losetup", &["-f".as_ref(), "--show".as_ref(), &image])?;
            let disk = Disk { device: device.trim().to_owned(), at };
            done("mount.exfat-fuse", &[disk.device.as_ref(), &disk.at]).map(|_| disk)
        });
        if mounted.is_none() {
            eprintln!("skipped: no exFAT disk can be mounted here");
        }
        mounted
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.at).stderr(Stdio::null()).status();
        let _ = Command::new("losetup").args(["-d", &self.device]).status();
    }
}

/// All files below a folder, by their paths.
fn files(folder: &Path) -> Vec<String> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        match entry.file_type().unwrap().is_dir() {
            true => all.extend(files(&entry.path()).iter().map(|it| format!("{name}/{it}"))),
            false => all.push(name),
        }
    }
    all.sort();
    all
}

const SIZE: usize = 3 << 20;

#[test]
fn files_whose_names_are_one_there_are_told_and_never_mixed() {
    let home = Home::new();
    let Some(disk) = Disk::mount(&home) else { return };
    for (name, seed) in [("Big.bin", 1), ("big.bin", 2), ("plain.bin", 3)] {
        home.write(&format!("tree/{name}"), bytes(seed, SIZE));
    }
    for folder in ["Sub", "sub"] {
        home.write(&format!("folders/{folder}/{folder}"), "x");
    }
    for name in ["\u{e9}mpty", "\u{c9}MPTY"] {
        home.write(&format!("empty/{name}"), "");
    }
    let served = home.serve(&[".", "--plain", "--anonymous"]);
    for (tree, pair) in [
        ("tree", "Big.bin and big.bin"),
        ("folders", "Sub and sub"),
        ("empty", "\u{c9}MPTY and \u{e9}mpty"),
    ] {
        let there = served.at(&format!("/{tree}/"));
        for source in [format!("{tree}/"), there] {
            for _ in 0..2 {
                let ran = home.run(["cp", &source, &format!("disk/{tree}/")]);
                ran.code_is(5).says(&["takes different names for one", pair, "--exclude"]);
                assert!(!home.exists(&format!("disk/{tree}")), "nothing has its name: {source}");
            }
        }
    }
    // Without one of them all is well, and the second copy has nothing to do.
    let cp = ["cp", "tree/", "disk/tree/", "--exclude", "/big.bin"];
    home.run(cp).code_is(0);
    assert_eq!(files(&disk.at.join("tree")), ["Big.bin", "plain.bin"]);
    assert!(home.read("disk/tree/Big.bin") == bytes(1, SIZE));
    home.run(cp).code_is(0).says(&["nothing"]);
    // Names that other file systems take for one are two here.
    home.write("two/\u{e9}", "composed");
    home.write("two/e\u{301}", "decomposed");
    home.run(["cp", "two/", "disk/two/"]).code_is(0);
    assert_eq!(home.read("disk/two/\u{e9}"), b"composed");
    assert_eq!(home.read("disk/two/e\u{301}"), b"decomposed");
}

#[test]
fn what_changed_only_its_case_is_not_removed_as_surplus() {
    let home = Home::new();
    let Some(disk) = Disk::mount(&home) else { return };
    for (name, seed) in [("Sub/Data.bin", 1), ("Sub/same", 2), ("gone", 3)] {
        home.write(&format!("tree/{name}"), bytes(seed, SIZE));
    }
    home.run(["cp", "tree/", "disk/"]).code_is(0);
    fs::rename(home.path("tree/Sub/Data.bin"), home.path("tree/Sub/data.bin")).unwrap();
    fs::rename(home.path("tree/Sub"), home.path("tree/sub")).unwrap();
    fs::remove_file(home.path("tree/gone")).unwrap();
    // The disk keeps whole seconds: a change within one would not be seen.
    let changed = home.write("tree/sub/data.bin", bytes(4, SIZE));
    let time = SystemTime::now() - Duration::from_secs(1000);
    fs::File::options().write(true).open(changed).unwrap().set_modified(time).unwrap();
    home.run(["cp", "tree/", "disk/", "--delete"]).code_is(0);
    assert_eq!(files(&disk.at).len(), 2, "{:?}", files(&disk.at));
    assert!(home.read("disk/sub/data.bin") == bytes(4, SIZE));
    assert!(home.read("disk/sub/same") == bytes(2, SIZE) && !home.exists("disk/gone"));
}

#[test]
fn files_of_lists_and_metalinks_keep_to_themselves() {
    let home = Home::new();
    let Some(disk) = Disk::mount(&home) else { return };
    let [one, two] = [1, 2].map(|seed| Content::random(seed, SIZE as u64));
    let server = Server::builder().file("/one", one).file("/two", two).start().unwrap();
    let (one, two) = (server.url("/one"), server.url("/two"));
    home.write("list", format!("{one}\n out=sub/Big.bin\n{two}\n out=Sub/big.bin\n"));
    let file = |name: &str, url: &str| format!("<file name=\"{name}\"><url>{url}</url></file>");
    let files_of = [file("Big.bin", &one), file("big.bin", &two)].concat();
    let metalink =
        format!("<metalink xmlns=\"urn:ietf:params:xml:ns:metalink\">{files_of}</metalink>");
    home.write("both.meta4", metalink);
    for (args, name) in [(["-i", "list"].as_slice(), "sub/Big.bin"), (&["both.meta4"], "Big.bin")] {
        let _ = fs::remove_dir_all(disk.at.join("new"));
        let ran = home.run([&["get"], args, &["-d", "disk/new"]].concat());
        ran.code_is(8).says(&["takes its name for that of an earlier file"]);
        assert_eq!(files(&disk.at), [format!("new/{name}")]);
        assert_eq!(fs::metadata(disk.at.join("new").join(name)).unwrap().len(), SIZE as u64);
        let first = home.run(["get", &one, "-o", "first", "--overwrite"]);
        first.code_is(0);
        assert!(home.read("first") == fs::read(disk.at.join("new").join(name)).unwrap());
    }
}
