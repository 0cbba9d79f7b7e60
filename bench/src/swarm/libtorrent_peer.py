"""A libtorrent client with its usual settings: TORRENT FOLDER PORT. Makes the file FOLDER/done when all is there."""

import sys
import time

import libtorrent

torrent, folder, port = sys.argv[1:4]
session = libtorrent.session(
    {
        "listen_interfaces": "0.0.0.0:" + port,
        "enable_dht": False,
        "enable_lsd": False,
        "enable_upnp": False,
        "enable_natpmp": False,
    }
)
handle = session.add_torrent({"ti": libtorrent.torrent_info(torrent), "save_path": folder})
while not handle.status().is_seeding:
    time.sleep(0.05)
open(folder + "/done", "w").close()
while True:
    time.sleep(3600)
