//! A gate on the way to a server: so many bytes get through, and the rest when the test says so. What a
//! test does in the middle of a transfer is done in its middle, however busy the machine is.
#![allow(dead_code)]

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use crate::support::serve::Served;

/// It is there until the test's process ends; each connection is one to the server.
pub struct Gate {
    address: SocketAddr,
    inner: Arc<Inner>,
}

struct Inner {
    /// Bytes that may still get through, in both directions together.
    left_bytes: Mutex<u64>,
    /// Those that have come back.
    back_bytes: AtomicU64,
    changed: Condvar,
}

impl Gate {
    /// In front of this server, letting so many bytes through.
    pub fn before(server: &Served, bytes: u64) -> Gate {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let inner = Arc::new(Inner {
            left_bytes: Mutex::new(bytes),
            back_bytes: AtomicU64::new(0),
            changed: Condvar::new(),
        });
        let (there, shared) = (server.address(), Arc::clone(&inner));
        std::thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                // Dropping the connection is what a server that is away does.
                let Ok(far) = TcpStream::connect(there) else { continue };
                let ends = [(near.try_clone(), far.try_clone()), (Ok(far), Ok(near))];
                for ((from, to), is_back) in ends.into_iter().zip([false, true]) {
                    let (Ok(from), Ok(to), inner) = (from, to, Arc::clone(&shared)) else { break };
                    std::thread::spawn(move || inner.pass(from, to, is_back));
                }
            }
        });
        Gate { address, inner }
    }

    /// This address, by way of the gate.
    pub fn on_the_way(&self, server: &Served, url: &str) -> String {
        url.replace(&server.address().to_string(), &self.address.to_string())
    }

    /// So many bytes more get through.
    pub fn hold_after(&self, bytes: u64) {
        *self.inner.left_bytes.lock().unwrap() = bytes;
        self.inner.changed.notify_all();
    }

    /// All gets through from now on.
    pub fn open(&self) {
        self.hold_after(u64::MAX);
    }

    /// The bytes that have come back from the server.
    pub fn back_bytes(&self) -> u64 {
        self.inner.back_bytes.load(Ordering::Relaxed)
    }
}

impl Inner {
    fn pass(&self, mut from: TcpStream, mut to: TcpStream, is_back: bool) {
        let mut part = [0; 16 << 10];
        while let Ok(bytes @ 1..) = from.read(&mut part) {
            let mut left = self.left_bytes.lock().unwrap();
            while *left < bytes as u64 {
                left = self.changed.wait(left).unwrap();
            }
            *left -= bytes as u64;
            drop(left);
            if is_back {
                self.back_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
            }
            if to.write_all(&part[..bytes]).is_err() {
                break;
            }
        }
        let _ = from.shutdown(Shutdown::Read);
        let _ = to.shutdown(Shutdown::Write);
    }
}
