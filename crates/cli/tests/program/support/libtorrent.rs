//! libtorrent, the library of qBittorrent and Deluge, by its Python bindings.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::torrent::Client;

/// Version 2.1, which knows v2 best.
pub const NEW: &str = "python3";
/// Version 2.0, Debian's.
pub const OLD: &str = "/usr/bin/python3";

/// A client that has or fetches the data of torrents, on a free port of the loopback interface. It prints
/// what happens, and `complete` when it has everything.
pub struct Libtorrent<'a> {
    pub python: &'a str,
    /// Further settings, as JSON.
    pub settings: &'a str,
    /// A port of this machine to connect to.
    pub peer: Option<u16>,
}

impl Libtorrent<'_> {
    /// Starts it in a folder with these torrent files and magnet links; what it prints goes to
    /// `NAME.log` there. `None`, with a message, where this Python has no such library.
    pub fn start(&self, folder: &Path, name: &str, torrents: &[&str]) -> Option<Client> {
        let import = Command::new(self.python).args(["-c", "import libtorrent"]).output();
        if !import.is_ok_and(|ran| ran.status.success()) {
            println!("skipped: {} has no libtorrent", self.python);
            return None;
        }
        fs::create_dir_all(folder).unwrap();
        let peer = self.peer.unwrap_or(0).to_string();
        let args = ["-W", "ignore", "-u", "-c", SCRIPT, self.settings, &peer];
        Client::start(folder, name, self.python, &[&args, torrents].concat())
    }
}

const SCRIPT: &str = r"
import json, sys, time, libtorrent as lt
category = lt.alert.category_t
settings = {'listen_interfaces': '127.0.0.1:0', 'enable_dht': False, 'enable_lsd': False,
    'enable_upnp': False, 'enable_natpmp': False, 'allow_multiple_connections_per_ip': True,
    'announce_to_all_tiers': True, 'alert_mask': category.tracker_notification
        | category.error_notification | category.peer_notification | category.connect_notification}
session = lt.session({**settings, **json.loads(sys.argv[1])})
handles = []
for torrent in sys.argv[3:]:
    is_link = torrent.startswith('magnet:')
    params = lt.parse_magnet_uri(torrent) if is_link else lt.add_torrent_params()
    if not is_link:
        params.ti = lt.torrent_info(torrent)
        print('info-hash', params.ti.info_hashes().v1)
    params.save_path = '.'
    handle = session.add_torrent(params)
    if sys.argv[2] != '0':
        handle.connect_peer(('127.0.0.1', int(sys.argv[2])))
    handles.append(handle)
print('listens at', session.listen_port())
was_complete = False
while True:
    for alert in session.pop_alerts():
        print(type(alert).__name__, alert.message())
    if not was_complete and all(handle.status().is_seeding for handle in handles):
        was_complete = True
        print('complete')
    time.sleep(0.05)
";
