//! What only the kernel knows of a TCP connection, and what it must be told.

use std::mem::{offset_of, size_of};
use std::os::fd::AsRawFd;
use std::time::Duration;

use tokio::net::{TcpStream, UdpSocket};

/// The head of Linux's `struct tcp_info` (`linux/tcp.h`) up to the last field of interest. It only
/// ever grew at its end; older kernels fill less of it.
#[repr(C)]
#[derive(Clone, Copy)]
struct TcpInfo {
    states: [u8; 8],
    rto_us: u32,
    ato_us: u32,
    snd_mss: u32,
    rcv_mss: u32,
    unacked_to_reordering: [u32; 11],
    rtt_us: u32,
    rttvar_to_total_retrans: [u32; 8],
    pacing_rate_to_bytes_acked: [u64; 3],
    bytes_received: u64,
    segs_out_to_notsent: [u32; 3],
    min_rtt_us: u32,
    data_segs: [u32; 2],
    delivery_rate_to_sndbuf_limited: [u64; 4],
    delivered: [u32; 2],
    bytes_sent_retrans: [u64; 2],
    dsack_dups: u32,
    reord_seen: u32,
    rcv_ooopack: u32,
    snd_wnd: u32,
}

/// What came since the connection is up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrivals {
    /// Packets that came before their turn; wraps.
    pub early_packets: u32,
    /// What such a packet holds, in bytes.
    pub packet_bytes: u32,
    /// Bytes whose turn it was, or came.
    pub in_order_bytes: u64,
}

/// Returns the present estimate of the round-trip time.
pub fn rtt(tcp: &TcpStream) -> Option<Duration> {
    let (info, bytes) = info(tcp)?;
    let known = bytes >= offset_of!(TcpInfo, rttvar_to_total_retrans) && info.rtt_us > 0;
    known.then(|| Duration::from_micros(u64::from(info.rtt_us)))
}

/// The smallest round trip lately: without what waits in queues.
pub fn min_rtt(tcp: &TcpStream) -> Option<Duration> {
    let (info, bytes) = info(tcp)?;
    let known = bytes >= offset_of!(TcpInfo, data_segs) && info.min_rtt_us != u32::MAX;
    known.then(|| Duration::from_micros(u64::from(info.min_rtt_us)))
}

/// What came so far; `None` before Linux 5.4.
pub fn arrivals(tcp: &TcpStream) -> Option<Arrivals> {
    let (info, bytes) = info(tcp)?;
    (bytes >= offset_of!(TcpInfo, snd_wnd)).then_some(Arrivals {
        early_packets: info.rcv_ooopack,
        packet_bytes: info.rcv_mss,
        in_order_bytes: info.bytes_received,
    })
}

/// Returns the kernel's figures and how many bytes of them it filled.
fn info(tcp: &TcpStream) -> Option<(TcpInfo, usize)> {
    // SAFETY: plain integers, for which zero is a valid value.
    let mut info: TcpInfo = unsafe { std::mem::zeroed() };
    let mut length = size_of::<TcpInfo>() as libc::socklen_t;
    // SAFETY: the pointer and length describe `info`; the kernel writes no more than that.
    let result = unsafe {
        libc::getsockopt(
            tcp.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &raw mut length,
        )
    };
    (result == 0).then_some((info, length as usize))
}

/// Wake readers only when `bytes` bytes are there; answers whether the kernel took it.
pub fn set_low_water(tcp: &TcpStream, bytes: usize) -> bool {
    let value = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    // SAFETY: the descriptor is open, the pointer and length describe a local integer.
    let result = unsafe {
        libc::setsockopt(
            tcp.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVLOWAT,
            (&raw const value).cast(),
            size_of_val(&value) as libc::socklen_t,
        )
    };
    result == 0
}

/// Takes more to be sent only while less than `bytes` bytes wait that were not sent once. A kernel that
/// refuses takes as much as it likes.
pub fn limit_unsent(tcp: &TcpStream, bytes: usize) {
    let value = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    // SAFETY: the descriptor is open, the pointer and length describe a local integer.
    unsafe {
        libc::setsockopt(
            tcp.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_NOTSENT_LOWAT,
            (&raw const value).cast(),
            size_of_val(&value) as libc::socklen_t,
        )
    };
}

/// Has a connection send by this congestion control; returns whether the kernel has it and lets us.
pub fn set_congestion_control(tcp: &impl AsRawFd, name: &str) -> bool {
    // SAFETY: the descriptor is open, the pointer and length describe `name`.
    let result = unsafe {
        libc::setsockopt(
            tcp.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_CONGESTION,
            name.as_ptr().cast(),
            name.len() as libc::socklen_t,
        )
    };
    result == 0
}

/// Returns by which congestion control a connection sends.
pub fn congestion_control(tcp: &TcpStream) -> Option<String> {
    // TCP_CA_NAME_MAX
    let mut name = [0_u8; 16];
    let mut length = name.len() as libc::socklen_t;
    // SAFETY: the pointer and length describe `name`; the kernel writes no more than that.
    let result = unsafe {
        libc::getsockopt(
            tcp.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_CONGESTION,
            name.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    let end = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
    (result == 0).then(|| String::from_utf8_lossy(&name[..end]).into_owned())
}

/// Gives a socket for datagrams room for `bytes` bytes in each direction, or as much as the kernel allows.
pub fn set_datagram_buffers(socket: &UdpSocket, bytes: usize) {
    let value = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    for option in [libc::SO_RCVBUF, libc::SO_SNDBUF] {
        // SAFETY: the descriptor is open, the pointer and length describe a local integer. A kernel that
        // refuses leaves the buffer as it is.
        unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                option,
                (&raw const value).cast(),
                size_of_val(&value) as libc::socklen_t,
            )
        };
    }
}

/// Lets a new connection's receive window grow as fast as its sender does. The kernel begins with
/// room for 64 KiB and doubles it once a round trip, if nothing is lost; one early loss holds the
/// sender up there for round trips. A mark makes room for itself, and the room stays when the
/// mark is taken away; unlike `SO_RCVBUF` this does not end the kernel's own tuning.
pub fn open_wide(tcp: &TcpStream) {
    if set_low_water(tcp, WIDE_BYTES) {
        set_low_water(tcp, 1);
    }
}

/// As much as one lane has under way on most routes; the kernel cuts it to half its own limit
/// (`net.ipv4.tcp_rmem`, 3 MiB as a rule).
const WIDE_BYTES: usize = 4 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_lie_where_the_kernel_puts_them() {
        assert_eq!(offset_of!(TcpInfo, rcv_mss), 20);
        assert_eq!(offset_of!(TcpInfo, rtt_us), 68);
        assert_eq!(offset_of!(TcpInfo, pacing_rate_to_bytes_acked), 104);
        assert_eq!(offset_of!(TcpInfo, bytes_received), 128);
        assert_eq!(offset_of!(TcpInfo, delivery_rate_to_sndbuf_limited), 160);
        assert_eq!(offset_of!(TcpInfo, rcv_ooopack), 224);
    }

    #[tokio::test]
    async fn a_connection_has_a_round_trip_and_a_wide_window() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let tcp = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        assert!(rtt(&tcp).is_some_and(|rtt| rtt < Duration::from_secs(60)));
        assert_eq!(arrivals(&tcp).map(|it| (it.early_packets, it.in_order_bytes)), Some((0, 0)));
        let (mut other, _) = listener.accept().await.unwrap();
        tokio::io::AsyncWriteExt::write_all(&mut other, &[0; 1000]).await.unwrap();
        tcp.readable().await.unwrap();
        assert_eq!(arrivals(&tcp).map(|it| it.in_order_bytes), Some(1000));
        let room = |tcp: &TcpStream| {
            let mut bytes: libc::c_int = 0;
            let mut length = size_of::<libc::c_int>() as libc::socklen_t;
            // SAFETY: the pointer and length describe a local integer.
            let result = unsafe {
                libc::getsockopt(
                    tcp.as_raw_fd(),
                    libc::SOL_SOCKET,
                    libc::SO_RCVBUF,
                    (&raw mut bytes).cast(),
                    &raw mut length,
                )
            };
            assert_eq!(result, 0);
            bytes
        };
        let before = room(&tcp);
        let most = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_rmem").unwrap_or_default();
        let most = most.split_whitespace().last().and_then(|it| it.parse::<i32>().ok());
        if most.is_none_or(|most| most < 8 * before) {
            println!("skipped: net.ipv4.tcp_rmem allows no wide windows here");
            return;
        }
        open_wide(&tcp);
        assert!(room(&tcp) > 4 * before, "{before} → {}", room(&tcp));
    }
}
