//! The tools that take part.

use crate::machine::find_program;
use crate::swarm::Client;
use crate::third_party;

use super::Cell;

/// A tool with its settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    /// `swath cp` from `swath serve`.
    Swath,
    /// `globus-url-copy` from `globus-gridftp-server`, with the parameters of the study.
    GridFtp,
    /// `rclone copy` from `rclone serve http`.
    Rclone,
    /// rsync from its daemon.
    Rsync,
    /// tar through ssh.
    TarSsh,
    /// `syq cp` by ssh.
    Syq,
    /// `xrdcp` from XRootD.
    Xrdcp,
    /// curl from vsftpd.
    Ftp,
    /// curl from nginx.
    Http,
    /// libtorrent from one seeder.
    BitTorrent,
    /// `swath get` of a torrent from `swath seed`.
    SwathTorrent,
    /// A copy between two servers.
    ThirdParty(third_party::Tool),
}

impl Tool {
    /// Those of the study, in the order of the tables.
    pub const STUDY: [Tool; 7] = [
        Tool::Swath,
        Tool::GridFtp,
        Tool::Rclone,
        Tool::Rsync,
        Tool::TarSsh,
        Tool::Syq,
        Tool::Xrdcp,
    ];

    /// Those of the Radioastron paper, as far as they can be had, and swath.
    pub const RADIOASTRON: [Tool; 6] =
        [Tool::Swath, Tool::Ftp, Tool::Http, Tool::GridFtp, Tool::BitTorrent, Tool::SwathTorrent];

    /// Those that order copies between two servers.
    pub const THIRD_PARTY: [Tool; 3] = [
        Tool::ThirdParty(third_party::Tool::Swath),
        Tool::ThirdParty(third_party::Tool::GridFtp(Some(8))),
        Tool::ThirdParty(third_party::Tool::Davix),
    ];

    /// Returns the name in tables and for `--tools`.
    pub fn name(self) -> &'static str {
        match self {
            Tool::Swath => "swath",
            Tool::GridFtp => "gridftp",
            Tool::Rclone => "rclone",
            Tool::Rsync => "rsync",
            Tool::TarSsh => "tar-ssh",
            Tool::Syq => "syq",
            Tool::Xrdcp => "xrdcp",
            Tool::Ftp => "ftp",
            Tool::Http => "http",
            Tool::BitTorrent => "bittorrent",
            Tool::SwathTorrent => "swath-torrent",
            Tool::ThirdParty(tool) => tool.name(),
        }
    }

    /// Returns how it is called and why so, and whether it encrypts, for the report.
    pub fn settings(self) -> (&'static str, &'static str) {
        match self {
            Tool::Swath => ("`swath cp` from `swath serve`, as they are", "TLS"),
            Tool::GridFtp => (
                "`globus-url-copy` from `globus-gridftp-server` with the parameters of the study: \
                 blocks of 4 MB, 32 files at a time over 4 connections each, pipelining, TCP buffers \
                 of 2 MB",
                "no",
            ),
            Tool::Rclone => (
                "`rclone copy` from `rclone serve http`: 32 files at a time, 4 connections for each large \
                 file. By WebDAV rclone asks for 100 files a second at most, and SFTP takes four times as \
                 long as HTTP",
                "no",
            ),
            Tool::Rsync => ("`rsync -a --whole-file` from its daemon", "no"),
            Tool::TarSsh => ("`ssh HOST tar c` into `tar x`", "ssh"),
            Tool::Syq => ("`syq cp` by ssh; its data goes over TCP connections of its own", "yes"),
            Tool::Xrdcp => (
                "`xrdcp -r` from XRootD by its own protocol: 32 files at a time, 4 connections",
                "no",
            ),
            Tool::Ftp => ("curl from vsftpd", "no"),
            Tool::Http => ("curl from nginx", "no"),
            Tool::BitTorrent => ("libtorrent from one seeder", "no"),
            Tool::SwathTorrent => ("`swath get` of a torrent from `swath seed`", "no"),
            Tool::ThirdParty(_) => ("as `bench/third-party` calls it", ""),
        }
    }

    /// Returns whether it makes files of links: that is not counted against it.
    pub fn follows_links(self) -> bool {
        matches!(self, Tool::GridFtp | Tool::Rclone | Tool::Xrdcp)
    }

    /// Returns why it does not take part in a cell and how to install it, if it does not.
    pub fn missing(self, cell: &Cell) -> Option<String> {
        let programs: &[(&str, &str)] = match self {
            Tool::Swath => &[],
            Tool::GridFtp => &[
                ("globus-url-copy", "apt install globus-gass-copy-progs"),
                ("globus-gridftp-server", "apt install globus-gridftp-server-progs"),
            ],
            Tool::Rclone => &[("rclone", "apt install rclone")],
            Tool::Rsync => &[("rsync", "apt install rsync")],
            Tool::TarSsh => SSH,
            Tool::Syq => &[("syq", "cargo install syq; takes about ten minutes"), SSH[0], SSH[1]],
            Tool::Xrdcp => {
                &[("xrdcp", "apt install xrootd-client"), ("xrootd", "apt install xrootd-server")]
            }
            Tool::Ftp => &[("curl", "apt install curl"), ("vsftpd", "apt install vsftpd")],
            Tool::Http => &[("curl", "apt install curl"), ("nginx", "apt install nginx-light")],
            Tool::BitTorrent => {
                let why = "python3 has no libtorrent (pip install libtorrent)";
                return (!Client::Libtorrent.is_installed()).then(|| why.to_owned());
            }
            Tool::SwathTorrent => &[],
            Tool::ThirdParty(tool) => return tool.missing(cell.data),
        };
        let missing = programs.iter().find(|(program, _)| find_program(program).is_none());
        missing.map(|(program, install)| format!("{program} is not installed ({install})"))
    }
}

/// What every tool by ssh needs.
const SSH: &[(&str, &str)] =
    &[("ssh", "apt install openssh-client"), ("sshd", "apt install openssh-server")];
