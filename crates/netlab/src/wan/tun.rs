//! TUN devices: created, addressed and read without any helper program.
//!
//! The device belongs to the namespace of the thread that opens it and disappears with its
//! descriptor. Plain devices have no offloads: one read is one IP packet of at most [`MTU_BYTES`]
//! with its checksum filled in, as it would travel on a wire. Devices with segmentation offload
//! read several segments of a connection at once, as network cards do, and leave out checksums:
//! that costs the machine far less. Such a read begins with a header of the kernel
//! (`struct virtio_net_hdr`), and so must what is sent.

use std::fs::OpenOptions;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;

use super::LabError;

/// Largest packet on an emulated link, IP header included.
pub const MTU_BYTES: usize = 1500;

/// One TUN device, up and with an address.
#[derive(Debug)]
pub struct Tun {
    fd: OwnedFd,
    has_offload: bool,
}

/// What a packet, or several segments read at once, are on a wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnWire {
    /// Packets.
    pub packets: usize,
    /// All their bytes, IP headers included.
    pub bytes: usize,
}

impl Tun {
    /// Creates a device in the namespace of the calling thread, with a network of its own.
    pub fn create(name: &str, address: Ipv4Addr, prefix_bits: u8) -> Result<Self, LabError> {
        Self::create_with(name, false, in_network(address, prefix_bits))
    }

    /// The same with segmentation offload.
    pub fn create_with_offload(
        name: &str,
        address: Ipv4Addr,
        prefix_bits: u8,
    ) -> Result<Self, LabError> {
        Self::create_with(name, true, in_network(address, prefix_bits))
    }

    /// Creates a device in the namespace of the calling thread that leads to `peer` and nowhere
    /// else, with or without segmentation offload. Any number of devices may have the same `address`,
    /// as the ports of a router do.
    pub fn create_toward(
        name: &str,
        address: Ipv4Addr,
        peer: Ipv4Addr,
        has_offload: bool,
    ) -> Result<Self, LabError> {
        Self::create_with(name, has_offload, |socket, request| {
            request.ifr_ifru.ifru_addr = socket_address(address);
            control(socket, libc::SIOCSIFADDR, request, "address a TUN device")?;
            // The kernel makes the route to the peer, with our address as its source.
            request.ifr_ifru.ifru_dstaddr = socket_address(peer);
            control(socket, libc::SIOCSIFDSTADDR, request, "name the peer of a TUN device")
        })
    }

    fn create_with(
        name: &str,
        has_offload: bool,
        give_address: impl FnOnce(RawFd, &mut libc::ifreq) -> Result<(), LabError>,
    ) -> Result<Self, LabError> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
            .open("/dev/net/tun")
            .map_err(|e| LabError::system("open /dev/net/tun", e))?;
        let mut request = request_for(name)?;
        let header = if has_offload { libc::IFF_VNET_HDR } else { 0 };
        request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI | header) as libc::c_short;
        control(file.as_raw_fd(), TUNSETIFF, &mut request, "create a TUN device")?;
        if has_offload {
            // SAFETY: the descriptor is open, and the argument of this operation is a number.
            let result = unsafe { libc::ioctl(file.as_raw_fd(), TUNSETOFFLOAD, OFFLOADS) };
            if result < 0 {
                return Err(LabError::last_os("set the offloads of a TUN device"));
            }
        }

        let socket = control_socket()?;
        let socket = socket.as_raw_fd();
        let mut request = request_for(name)?;
        request.ifr_ifru.ifru_mtu = MTU_BYTES as libc::c_int;
        control(socket, libc::SIOCSIFMTU, &mut request, "set the MTU of a TUN device")?;
        request.ifr_ifru.ifru_metric = DEVICE_QUEUE_PACKETS;
        control(socket, SIOCSIFTXQLEN, &mut request, "set the queue of a TUN device")?;
        give_address(socket, &mut request)?;
        // Router solicitations would only add noise; a kernel without IPv6 has no such file.
        let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6"), "1");
        bring_up(name)?;
        Ok(Self { fd: file.into(), has_offload })
    }

    /// Returns the descriptor, for polling.
    pub fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Returns the IP packet in what was read, after the kernel's header.
    pub fn packet<'a>(&self, read: &'a [u8]) -> &'a [u8] {
        let header_bytes = if self.has_offload { HEADER_BYTES } else { 0 };
        read.get(header_bytes..).unwrap_or_default()
    }

    /// Returns what was read as it is on a wire.
    pub fn on_wire(&self, read: &[u8]) -> OnWire {
        let bytes = self.packet(read).len();
        match read.first_chunk() {
            Some(header) if self.has_offload => segments(header, bytes),
            _ => OnWire { packets: 1, bytes },
        }
    }

    /// Reads one packet, or segments, into room for [`READ_BYTES_MAX`]; `None` when none waits.
    pub fn receive(&self, packet: &mut [u8]) -> io::Result<Option<usize>> {
        // SAFETY: the pointer and length describe the caller's live, exclusive buffer.
        let read =
            unsafe { libc::read(self.as_raw_fd(), packet.as_mut_ptr().cast(), packet.len()) };
        match usize::try_from(read) {
            Ok(length_bytes) => Ok(Some(length_bytes)),
            Err(_) => match io::Error::last_os_error() {
                e if e.kind() == io::ErrorKind::WouldBlock => Ok(None),
                e if e.kind() == io::ErrorKind::Interrupted => Ok(None),
                e => Err(e),
            },
        }
    }

    /// Hands on what was read to the kernel of this side; false when it did not take it.
    pub fn send(&self, packet: &[u8]) -> bool {
        // SAFETY: the pointer and length describe a live buffer that is only read.
        let written =
            unsafe { libc::write(self.as_raw_fd(), packet.as_ptr().cast(), packet.len()) };
        usize::try_from(written) == Ok(packet.len())
    }
}

/// Returns what gives a device an address in a network of its own.
fn in_network(
    address: Ipv4Addr,
    prefix_bits: u8,
) -> impl FnOnce(RawFd, &mut libc::ifreq) -> Result<(), LabError> {
    move |socket, request| {
        request.ifr_ifru.ifru_addr = socket_address(address);
        control(socket, libc::SIOCSIFADDR, request, "address a TUN device")?;
        let mask = u32::MAX.checked_shl(32 - u32::from(prefix_bits.min(32))).unwrap_or(0);
        request.ifr_ifru.ifru_netmask = socket_address(Ipv4Addr::from(mask));
        control(socket, libc::SIOCSIFNETMASK, request, "set a netmask")
    }
}

/// Returns what `bytes` bytes become whose header says into which segments they are cut: each has
/// the headers of IP and TCP.
fn segments(header: &[u8; HEADER_BYTES], bytes: usize) -> OnWire {
    let number = |at| usize::from(u16::from_ne_bytes([header[at], header[at + 1]]));
    let (has_segments, headers_bytes, segment_bytes) = (header[1] != 0, number(2), number(4));
    let packets = match has_segments && segment_bytes > 0 {
        true => bytes.saturating_sub(headers_bytes).div_ceil(segment_bytes).max(1),
        false => 1,
    };
    OnWire { packets, bytes: bytes + (packets - 1) * headers_bytes }
}

/// Gives the loopback device of the calling thread's namespace a second address, which belongs to
/// it and to no network.
pub(super) fn add_loopback_address(address: Ipv4Addr) -> Result<(), LabError> {
    let socket = control_socket()?;
    let mut request = request_for("lo:1")?;
    request.ifr_ifru.ifru_addr = socket_address(address);
    control(socket.as_raw_fd(), libc::SIOCSIFADDR, &mut request, "address the loopback device")?;
    request.ifr_ifru.ifru_netmask = socket_address(Ipv4Addr::BROADCAST);
    control(socket.as_raw_fd(), libc::SIOCSIFNETMASK, &mut request, "set a netmask")
}

/// Brings a device of the calling thread's namespace up.
pub(super) fn bring_up(name: &str) -> Result<(), LabError> {
    let socket = control_socket()?;
    let mut request = request_for(name)?;
    control(socket.as_raw_fd(), libc::SIOCGIFFLAGS, &mut request, "read device flags")?;
    // SAFETY: SIOCGIFFLAGS has just filled this member of the union.
    let flags = unsafe { request.ifr_ifru.ifru_flags };
    request.ifr_ifru.ifru_flags = flags | (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    control(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &mut request, "bring a device up")
}

fn control_socket() -> Result<OwnedFd, LabError> {
    // SAFETY: socket has no preconditions.
    let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(LabError::last_os("open a control socket"));
    }
    // SAFETY: the descriptor is fresh and owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn request_for(name: &str) -> Result<libc::ifreq, LabError> {
    // SAFETY: ifreq is plain data for which all zeroes is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.is_empty() || name.len() >= request.ifr_name.len() {
        let cause = io::Error::from(io::ErrorKind::InvalidInput);
        return Err(LabError::system(format!("name a device '{name}'"), cause));
    }
    for (slot, byte) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *slot = byte as libc::c_char;
    }
    Ok(request)
}

fn socket_address(address: Ipv4Addr) -> libc::sockaddr {
    let mut bytes = [0; 14];
    // Two bytes of port come first, then the address in network order.
    for (slot, octet) in bytes[2..6].iter_mut().zip(address.octets()) {
        *slot = octet as libc::c_char;
    }
    libc::sockaddr { sa_family: libc::AF_INET as libc::sa_family_t, sa_data: bytes }
}

fn control(
    fd: RawFd,
    operation: libc::Ioctl,
    request: &mut libc::ifreq,
    doing: &str,
) -> Result<(), LabError> {
    // SAFETY: every operation used here takes a pointer to an ifreq, which is live and exclusive.
    let result = unsafe { libc::ioctl(fd, operation, request as *mut libc::ifreq) };
    if result < 0 { Err(LabError::last_os(doing)) } else { Ok(()) }
}

/// `_IOW('T', 202, int)`, from linux/if_tun.h.
const TUNSETIFF: libc::Ioctl = 0x4004_54ca;

/// `_IOW('T', 208, unsigned int)`, from linux/if_tun.h.
const TUNSETOFFLOAD: libc::Ioctl = 0x4004_54d0;

/// `TUN_F_CSUM | TUN_F_TSO4`, from linux/if_tun.h.
const OFFLOADS: libc::c_ulong = 1 | 2;

/// Size of `struct virtio_net_hdr`, from linux/virtio_net.h.
const HEADER_BYTES: usize = 10;

/// Room for all that a device may read at once.
pub const READ_BYTES_MAX: usize = HEADER_BYTES + (64 << 10);

/// From linux/sockios.h.
const SIOCSIFTXQLEN: libc::Ioctl = 0x8943;

/// The device's own queue must never be the one that drops: it holds what one sender can hand
/// over between two turns of the engine, and the emulated queue stands behind it.
const DEVICE_QUEUE_PACKETS: libc::c_int = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_have_headers_of_their_own_on_the_wire() {
        let mut header = [0; HEADER_BYTES];
        assert_eq!(segments(&header, 1500), OnWire { packets: 1, bytes: 1500 });
        // 52 bytes of headers, 1,448 of payload in each segment.
        header[1] = 1;
        header[2..4].copy_from_slice(&52_u16.to_ne_bytes());
        header[4..6].copy_from_slice(&1448_u16.to_ne_bytes());
        let two = OnWire { packets: 2, bytes: 1500 + 53 };
        assert_eq!(segments(&header, 52 + 1448 + 1), two);
        assert_eq!(segments(&header, 52 + 2896), OnWire { packets: 2, bytes: 3000 });
        header[4..6].fill(0);
        assert_eq!(segments(&header, 3000), OnWire { packets: 1, bytes: 3000 });
    }
}
