//! `swath serve --through PORT`: one connection to a server on this machine, by standard input and
//! output. `swath cp` has ssh run it where neither the port can be reached nor sshd forwards.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, TcpStream};
use std::os::fd::AsFd as _;

use swath_jobs::ssh::READY;

use crate::exit::{Exit, fail};

/// Carry bytes both ways until the server ends the connection.
pub fn run(port: u16) -> Exit {
    match carry(port) {
        Ok(()) => Exit::Done,
        Err(error) => fail(Exit::Sources, &format!("port {port} of this machine: {error}")),
    }
}

fn carry(port: u16) -> io::Result<()> {
    let tcp = TcpStream::connect((Ipv4Addr::LOCALHOST, port))
        .or_else(|_| TcpStream::connect((Ipv6Addr::LOCALHOST, port)))?;
    tcp.set_nodelay(true)?;
    // Without the buffers of the standard streams: what comes goes on at once.
    let mut input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let mut output = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    output.write_all(format!("{READY}\n").as_bytes())?;
    let to = tcp.try_clone()?;
    std::thread::spawn(move || {
        let _ = copy(&mut input, &mut &to);
        let _ = to.shutdown(Shutdown::Write);
    });
    // Either of the two may leave in the middle, which the other end of each knows best.
    let _ = copy(&mut &tcp, &mut output);
    Ok(())
}

/// `io::copy` would have the system splice, and a pipe that is filled that way may call itself
/// readable with nothing in it: sshd, which reads blocking, then waits in there for ever.
fn copy(from: &mut impl Read, to: &mut impl Write) -> io::Result<()> {
    let mut part = vec![0; PART_BYTES];
    loop {
        match from.read(&mut part) {
            Ok(0) => return Ok(()),
            Ok(bytes) => to.write_all(&part[..bytes])?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Carried at a time.
const PART_BYTES: usize = 256 << 10;
