//! `swath serve --through PORT`: connects standard input and output to a local port. `swath cp` runs it
//! by ssh if the port is unreachable and sshd forbids forwarding.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, TcpStream};
use std::os::fd::AsFd as _;

use swath_jobs::ssh::READY;

use crate::exit::{Exit, fail};

/// Copies bytes both ways until the server closes the connection.
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
    // Unbuffered: data is passed on at once.
    let mut input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let mut output = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    output.write_all(format!("{READY}\n").as_bytes())?;
    let to = tcp.try_clone()?;
    std::thread::spawn(move || {
        let _ = copy(&mut input, &mut &to);
        let _ = to.shutdown(Shutdown::Write);
    });
    // Both ends detect a broken connection themselves.
    let _ = copy(&mut &tcp, &mut output);
    Ok(())
}

/// Copies without `io::copy`, which uses splice: a pipe filled by splice may report that it is readable
/// when it is empty, and sshd, which reads blocking, then hangs.
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

/// Bytes per read.
const PART_BYTES: usize = 256 << 10;
