//! The memory of `swath serve` where clients take nothing of what they asked for.

use crate::support::serve::succeeds;
use crate::support::{Home, peak_bytes};

/// Asks for a file so many times on each of so many connections that take nothing of it, or as much as
/// fits into the windows of so many bytes that they grant.
const TAKES_NOTHING: &str = r"
import socket, ssl, sys, time
host, port, token = sys.argv[1], int(sys.argv[2]), sys.argv[3].encode()
connections, streams, window, waits = (int(word) for word in sys.argv[4:8])
context = ssl.create_default_context()
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
context.set_alpn_protocols(['h2'])
def frame(kind, flags, stream, payload):
    return len(payload).to_bytes(3, 'big') + bytes([kind, flags]) + stream.to_bytes(4, 'big') + payload
def field(name, value):
    return bytes([0, len(name)]) + name + bytes([len(value)]) + value
head = b''.join(field(*pair) for pair in [
    (b':method', b'GET'), (b':scheme', b'https'), (b':path', b'/big.bin'), (b':authority', b'x'),
    (b'authorization', b'Bearer ' + token)])
kept = []
for number in range(connections):
    connection = context.wrap_socket(socket.create_connection((host, port)))
    assert connection.selected_alpn_protocol() == 'h2'
    hello = b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n' + frame(4, 0, 0, b'\0\4' + window.to_bytes(4, 'big'))
    if window > 65535:
        hello += frame(8, 0, 0, (window - 65535).to_bytes(4, 'big'))
    connection.sendall(hello)
    for stream in range(streams):
        connection.sendall(frame(1, 5, 2 * stream + 1, head))
    kept.append(connection)
print('asked', flush=True)
time.sleep(waits)
";

#[test]
fn who_takes_nothing_of_many_answers_takes_little_memory() {
    // Each answer had most of a megabyte made ahead: sixteen connections took 1.3 GB.
    let home = Home::new();
    home.write("tree/big.bin", vec![7; 20 << 20]);
    let server = home.serve(&["tree"]);
    let address = server.address();
    let (host, port) = (address.ip().to_string(), address.port().to_string());
    let args = ["-c", TAKES_NOTHING, host.as_str(), port.as_str(), server.token()];
    for what in [["8", "100", "1", "2"], ["80", "32", "1000000000", "3"]] {
        let Some(_) = succeeds(&home.work(), "python3", &[&args[..], &what].concat()) else {
            return;
        };
        let peak = peak_bytes(server.pid()).unwrap();
        assert!(peak < 250_000_000, "{peak} bytes");
    }
}
