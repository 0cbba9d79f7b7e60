//! The directions in which a tree can be copied: what holds in one of them has to hold in all.

use std::fs;

use super::serve::Served;
use super::{Home, Ran, Running};
use crate::gate::Gate;

/// From `tree` into `copy`, in one direction.
pub struct Way {
    pub name: &'static str,
    server: Option<(Served, Gate)>,
    from: String,
    to: String,
}

impl Way {
    /// Every direction, each at home in a folder of its own.
    pub fn all() -> impl Iterator<Item = (Way, Home)> {
        Way::each(|| Some(Home::new()))
    }

    /// Every direction, for somebody whom the system refuses things.
    pub fn all_of_nobody() -> impl Iterator<Item = (Way, Home)> {
        Way::each(Home::of_nobody)
    }

    fn each(at: fn() -> Option<Home>) -> impl Iterator<Item = (Way, Home)> {
        ["from a server", "to a server", "here"].into_iter().filter_map(move |name| {
            let home = at()?;
            fs::create_dir(home.path("tree")).unwrap();
            home.hand_over();
            let here = |path: &str| home.path(path).display().to_string();
            let (server, from, to) = match name {
                "from a server" => {
                    let server = home.serve(&["tree", "--anonymous", "--plain"]);
                    let gate = Gate::before(&server, u64::MAX);
                    let from = gate.on_the_way(&server, &server.url);
                    (Some((server, gate)), from, here("copy"))
                }
                "to a server" => {
                    let server = home.serve(&[".", "--write", "--plain"]);
                    fs::write(home.home().join("token"), server.token()).unwrap();
                    let gate = Gate::before(&server, u64::MAX);
                    let to = gate.on_the_way(&server, &server.at("copy/"));
                    (Some((server, gate)), here("tree/"), to)
                }
                _ => (None, here("tree/"), here("copy")),
            };
            Some((Way { name, server, from, to }, home))
        })
    }

    /// Whether this machine's disk is what is written to by a server.
    pub fn sends(&self) -> bool {
        self.server.is_some() && self.from.starts_with('/')
    }

    /// `swath sync` with these options.
    pub fn sync(&self, home: &Home, options: &[&str]) -> Ran {
        println!("{}: {options:?}", self.name);
        home.run(self.command(home, options))
    }

    /// The same, begun: little more than so many bytes come before it [`goes_on`](Way::goes_on). Where
    /// nothing is on the way, six times as much takes five seconds.
    pub fn start_and_hold(&self, home: &Home, bytes: u64) -> Running {
        println!("{}, begun", self.name);
        let rate = (bytes * 6 / 5).to_string();
        let mut command = self.command(home, &[]);
        match &self.server {
            Some((_, gate)) => gate.hold_after(bytes),
            None => command.extend(["--limit-rate".to_owned(), rate]),
        }
        home.swath(command).start()
    }

    /// Lets what was held go on.
    pub fn goes_on(&self) {
        if let Some((_, gate)) = &self.server {
            gate.open();
        }
    }

    /// Its words.
    pub fn command(&self, home: &Home, options: &[&str]) -> Vec<String> {
        let mut all = vec!["sync".to_owned(), self.from.clone(), self.to.clone()];
        all.extend(options.iter().map(|&option| option.to_owned()));
        if self.sends() {
            let token = home.home().join("token").display().to_string();
            all.extend(["--bearer-file".to_owned(), token]);
        }
        all
    }

    /// The bytes that came from the other side.
    pub fn fetched_bytes(&self, home: &Home, options: &[&str]) -> u64 {
        let ran = self.sync(home, &[options, &["--json"]].concat());
        ran.code_is(0);
        let out = ran.out();
        let last: serde_json::Value = serde_json::from_str(out.lines().last().unwrap()).unwrap();
        last["fetched_bytes"].as_u64().unwrap_or_else(|| panic!("{last}"))
    }

    /// What a dry run prints: what would be done and the path, a line each.
    pub fn plan(&self, home: &Home, options: &[&str]) -> Vec<String> {
        let ran = self.sync(home, &[options, &["--dry-run"]].concat());
        ran.code_is(0);
        let words = |line: &str| {
            // Of which file it is another name is told behind it.
            let line = line.split(" (another name of ").next().unwrap_or(line);
            let mut words = line.split_whitespace();
            format!("{} {}", words.next().unwrap(), words.last().unwrap())
        };
        ran.out().lines().map(words).collect()
    }
}
