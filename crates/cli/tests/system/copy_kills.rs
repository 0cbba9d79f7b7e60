//! `kill -9` on any side of a copy of many files, at random instants, in both directions and between
//! servers: the same command completes it, and both trees are the same.
//!
//! `SWATH_TREE_KILLS=100` asks for that many kills in each direction in place of a few,
//! `SWATH_TREE_FILES=20000` for so many files.

use std::fs;
use std::time::{Duration, Instant};

use crate::support::Home;
use crate::support::random::Random;
use crate::support::serve::{Served, reserved_address};
use crate::support::trees::{assert_same, bytes};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Direction {
    Fetch,
    Send,
    /// From one server to another.
    Between,
}

/// A number that the user of this test may set.
fn wished(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// Files of nothing to 20 kB in nested folders, and one of several blocks.
fn plant_many(home: &Home, files: u64) {
    home.write("tree/large.bin", bytes(7, 3_000_017));
    for n in 0..files {
        let folder = home.path(format!("tree/{}/{}", n % 7, n / 500));
        if n % 500 < 7 {
            fs::create_dir_all(&folder).unwrap();
        }
        let size = (n as usize).wrapping_mul(7919) % 20_000;
        let size = if n % 3 == 0 { size } else { size / 20 };
        fs::write(folder.join(format!("{n}.dat")), bytes(n as u32, size)).unwrap();
    }
}

struct Copy<'a> {
    home: &'a Home,
    direction: Direction,
}

impl Copy<'_> {
    fn source(&self, address: &str) -> Served {
        self.home.serve_at(address, &["tree", "--plain", "--anonymous"])
    }

    fn destination(&self, address: &str) -> Served {
        let args = ["there", "--plain", "--write", "--token-file", "tokens"];
        let fetches = ["--third-party", "--third-party-from", "127.0.0.0/8"];
        let more = if self.direction == Direction::Between { &fetches[..] } else { &[] };
        self.home.serve_at(address, &[&args[..], more].concat())
    }

    /// All servers, the source first.
    fn serve(&self) -> Vec<Served> {
        match self.direction {
            Direction::Fetch => vec![self.source(&reserved_address())],
            Direction::Send => vec![self.destination(&reserved_address())],
            Direction::Between => {
                vec![self.source(&reserved_address()), self.destination(&reserved_address())]
            }
        }
    }

    fn serve_again(&self, server: usize, address: &str) -> Served {
        match (self.direction, server) {
            (Direction::Fetch, _) | (Direction::Between, 0) => self.source(address),
            _ => self.destination(address),
        }
    }

    fn command(&self, servers: &[Served]) -> crate::support::Swath {
        let to = |server: &Served| server.url.replace("://", &format!("://x:{TOKEN}@")) + "copy/";
        let (from, to) = match servers {
            [source, destination] => (source.url.clone(), to(destination)),
            [server] if self.direction == Direction::Fetch => {
                (server.url.clone(), "there/copy".to_owned())
            }
            [server] => ("tree/".to_owned(), to(server)),
            _ => unreachable!("one server or two"),
        };
        self.home.swath(["cp", "--quiet", &from, &to]).limit(Duration::from_secs(120))
    }

    /// How long it takes if nobody is killed.
    fn usual(&self) -> Duration {
        let servers = self.serve();
        let began = Instant::now();
        self.command(&servers).run().code_is(0);
        began.elapsed()
    }

    /// One kill at some instant, then the same command again. Answers whether the kill came in time.
    fn killed_at(&self, instant: Duration, random: &mut Random) -> bool {
        let _ = fs::remove_dir_all(self.home.path("there"));
        fs::create_dir(self.home.path("there")).unwrap();
        let mut servers = self.serve();
        let running = self.command(&servers).start();
        std::thread::sleep(instant);
        let mut came_in_time = !self.home.exists("there/copy");
        match random.below(1 + servers.len() as u64) as usize {
            0 => running.signal(libc::SIGKILL),
            server => {
                // Dropping it is `kill -9`.
                let address = servers[server - 1].address().to_string();
                drop(servers.remove(server - 1));
                servers.insert(server - 1, self.serve_again(server - 1, &address));
                if random.below(2) == 0 {
                    running.signal(libc::SIGKILL);
                }
            }
        }
        // Left alone it gets over it, or says that it goes on later.
        let ran = running.wait();
        if ran.code() != 0 {
            self.command(&servers).run().code_is(0);
            came_in_time = true;
        }
        assert_same(&self.home.path("tree"), &self.home.path("there/copy"));
        let left: Vec<_> = fs::read_dir(self.home.path("there")).unwrap().flatten().collect();
        assert_eq!(left.len(), 1, "nothing is left over: {left:?}");
        came_in_time
    }
}

fn survives(direction: Direction) {
    let (kills, files) = (wished("SWATH_TREE_KILLS", 6), wished("SWATH_TREE_FILES", 2_000));
    let seed = wished("SWATH_SEED", 1);
    let home = Home::new();
    plant_many(&home, files);
    home.write("tokens", format!("{TOKEN} write\n"));
    fs::create_dir(home.path("there")).unwrap();
    let copy = Copy { home: &home, direction };
    let usual = copy.usual();
    let mut random = Random(seed);
    let mut in_time = 0;
    for kill in 0..kills {
        let instant = Duration::from_micros(random.below(usual.as_micros() as u64));
        println!("{direction:?}, seed {seed}, kill {kill} after {instant:?}");
        in_time += u64::from(copy.killed_at(instant, &mut random));
    }
    println!("{direction:?}: {in_time} of {kills} kills came in time");
    assert!(in_time > 0, "none of {kills} kills came before the end");
}

#[test]
fn a_fetched_tree_survives_kills_of_either_side() {
    survives(Direction::Fetch);
}

#[test]
fn a_sent_tree_survives_kills_of_either_side() {
    survives(Direction::Send);
}

#[test]
fn a_tree_copied_between_servers_survives_kills_of_all_sides() {
    survives(Direction::Between);
}

const TOKEN: &str = "a-secret-of-the-test-0123456789abcdef";
