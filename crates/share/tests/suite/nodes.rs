//! Nodes on the loopback interface: what they send to whom, how they meet, and how they part.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use swath_model::Range;
use swath_model::digest::{Algorithm, Hasher};
use swath_netlab::faulty::{Certificate, Content, Server};
use swath_share::log::{Entry, Part};
use swath_share::units::Units;
use swath_share::{
    ClusterToken, Node, NodeOptions, Sameness, ShareError, ShareEvent, SharedContent, Sharing,
    Version,
};
use swath_source::{ClientCertificate, LaneError, Net, NetOptions, Secret};
use swath_transfer::{Discovery as _, block_hash};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use url::Url;

/// Three units and a bit.
const SIZE: u64 = 3 * (256 << 10) + 1001;
/// Long, because other work may keep the machine busy.
const PATIENCE: Duration = Duration::from_secs(90);

fn bytes() -> Vec<u8> {
    (0..SIZE).map(|at| (at * at / 7) as u8).collect()
}

fn token(text: &str) -> ClusterToken {
    ClusterToken::new(&Secret::new(text))
}

fn sameness() -> Sameness {
    Sameness::Digest(Hasher::digest(Algorithm::Sha256, &bytes()))
}

async fn node(secret: &str) -> (Node, mpsc::Receiver<ShareEvent>) {
    let (events, told) = mpsc::channel(64);
    let options = NodeOptions {
        net: net(NetOptions::default()),
        listen: "127.0.0.1:0".parse().unwrap(),
        token: token(secret),
        upload_bytes_per_s: None,
    };
    (Node::start(options, events).await.unwrap(), told)
}

fn sharing(whole: Option<PathBuf>, nodes: &[SocketAddr]) -> Sharing {
    let last_modified = Some("Sun, 06 Nov 1994 08:49:37 GMT".to_owned());
    Sharing {
        sameness: sameness(),
        size_bytes: SIZE,
        piece_bytes: None,
        whole,
        version: Version { etag: Some("\"7\"".to_owned()), last_modified },
        sealed: None,
        nodes: nodes.to_vec(),
        trackers: Vec::new(),
    }
}

/// A node that has the whole file, and the folder where it lies.
struct Holder {
    node: Node,
    content: Arc<SharedContent>,
    _folder: tempfile::TempDir,
}

impl Holder {
    async fn start() -> Holder {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        std::fs::write(&path, bytes()).unwrap();
        let (node, _) = node("ours").await;
        let content = node.share(sharing(Some(path), &[])).unwrap();
        Holder { node, content, _folder: folder }
    }

    fn address(&self) -> SocketAddr {
        self.node.address()
    }

    /// The answer to a request for bytes.
    async fn part(&self, range: &str) -> Answer {
        let range = format!("range: {range}\r\n");
        ask(self.address(), "GET", &target("/share", ""), &range).await
    }

    /// The log from this entry on.
    async fn log(&self, from: u64) -> Part {
        let more = format!("&from={from}&node=7&port=9");
        let answer = ask(self.address(), "GET", &target("/share/log", &more), "").await;
        assert_eq!(answer.status, 200);
        Part::read(&answer.body).unwrap()
    }

    /// Waits until others can take all of it.
    async fn offers_all(&self) {
        let offers = async {
            let (mut from, mut units) = (0, 0);
            while units < 4 {
                let part = self.log(from).await;
                units += part.entries.len();
                from = part.next;
            }
        };
        timeout(PATIENCE, offers).await.expect("in time");
    }
}

struct Answer {
    status: u16,
    head: String,
    body: Vec<u8>,
}

/// The target of a question about the content.
fn target(path: &str, more: &str) -> String {
    let content = token("ours").content(&sameness(), &Units::of(SIZE));
    format!("{path}?content={content}{more}")
}

fn net(options: NetOptions) -> Net {
    Net::new(options).unwrap().without_credentials(PATIENCE).unwrap()
}

fn certificate(secret: &str) -> ClientCertificate {
    ClientCertificate::of_pem(&token(secret).group().pem().unwrap()).unwrap()
}

/// Asks as one of the cluster does.
async fn ask(to: SocketAddr, method: &str, target: &str, fields: &str) -> Answer {
    let group = net(NetOptions::default()).of_group(certificate("ours")).unwrap();
    ask_by(&group, to, method, target, fields).await.unwrap()
}

async fn ask_by(
    net: &Net,
    to: SocketAddr,
    method: &str,
    target: &str,
    fields: &str,
) -> Result<Answer, LaneError> {
    let url = Url::parse(&format!("https://{to}/")).unwrap();
    let asking = async {
        let mut stream = net.upstream(&url, false).await?;
        let head = format!("{method} {target} HTTP/1.1\r\nhost: x\r\n{fields}\r\n");
        stream.send(head.as_bytes());
        let sent = poll_fn(|cx| stream.poll_send(cx)).await;
        sent.map_err(|error| LaneError::Protocol { reason: error.to_string() })?;
        let head = poll_fn(|cx| stream.poll_head(cx, method == "HEAD")).await?;
        let ended = || LaneError::Protocol { reason: "it ends".to_owned() };
        let head = head.ok_or_else(ended)?;
        let (mut body, mut some) = (Vec::new(), [0; 65536]);
        while let taken @ 1.. = poll_fn(|cx| stream.poll_body(cx, &mut some)).await? {
            body.extend(&some[..taken]);
        }
        let fields = head.fields.iter().map(|(name, value)| format!("{name}: {value}\n"));
        let lines = fields.collect::<String>().to_lowercase();
        Ok(Answer { status: head.status, head: lines, body })
    };
    timeout(PATIENCE, asking).await.expect("in time")
}

/// Waits until something holds.
async fn until(what: &str, holds: impl Fn() -> bool) {
    let waits = async {
        while !holds() {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, waits).await.unwrap_or_else(|_| panic!("{what} in time"));
}

#[tokio::test]
async fn what_is_not_shared_is_not_there() {
    let holder = Holder::start().await;
    holder.offers_all().await;
    let zeros = "0".repeat(64);
    for target in [
        "/".to_owned(),
        "/share".to_owned(),
        "/share/log?from=0&node=1&port=1".to_owned(),
        format!("/share?content={zeros}"),
        format!("/share/log?content={zeros}&from=0&node=1&port=1"),
        "/share?content=&key=&&&=%zz".to_owned(),
        target("/other", ""),
    ] {
        let answer = ask(holder.address(), "GET", &target, "").await;
        assert_eq!(answer.status, 404, "{target}");
        assert_eq!(answer.body, b"there is nothing here\n", "{target}");
    }
    assert_eq!(ask(holder.address(), "GET", &target("/share", ""), "").await.status, 200);
}

#[tokio::test]
async fn whoever_cannot_prove_the_token_is_told_nothing() {
    let holder = Holder::start().await;
    holder.offers_all().await;
    let ours = certificate("ours").fingerprint();
    let known =
        |certificate| NetOptions { fingerprints: vec![ours], certificate, ..NetOptions::default() };
    for (who, options) in [
        ("without a certificate", known(None)),
        ("with another one", known(Some(certificate("theirs")))),
    ] {
        let stranger = Net::new(options).unwrap();
        let answer = ask_by(&stranger, holder.address(), "GET", &target("/share", ""), "").await;
        assert!(answer.is_err(), "{who}: {}", answer.unwrap().status);
    }
    // Without TLS it says that it speaks TLS, whatever it is asked.
    let mut plain = TcpStream::connect(holder.address()).await.unwrap();
    let asks = format!("GET {} HTTP/1.1\r\nhost: x\r\n\r\n", target("/share", ""));
    plain.write_all(asks.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    timeout(PATIENCE, plain.read_to_end(&mut answer)).await.expect("in time").unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 4") && answer.len() < 1000, "{}", answer.len());
    assert_eq!(holder.content.sent_bytes(), 0);
}

#[tokio::test]
async fn whoever_reads_along_can_neither_read_nor_repeat_anything() {
    let holder = Holder::start().await;
    holder.offers_all().await;
    // Somebody in between records what a node sends, and passes it on.
    let between = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, to) = (between.local_addr().unwrap(), holder.address());
    let recorded = Arc::new(Mutex::new(Vec::new()));
    let records = Arc::clone(&recorded);
    tokio::spawn(async move {
        while let Ok((mut from, _)) = between.accept().await {
            let (mut on, records) = (TcpStream::connect(to).await.unwrap(), Arc::clone(&records));
            let number = {
                let mut all = records.lock().unwrap();
                all.push(Vec::new());
                all.len() - 1
            };
            tokio::spawn(async move {
                let ((mut asks, mut hears), (mut answers, mut told)) = (from.split(), on.split());
                let out = async {
                    let mut some = [0; 4096];
                    while let Ok(taken @ 1..) = asks.read(&mut some).await {
                        records.lock().unwrap()[number].extend(&some[..taken]);
                        told.write_all(&some[..taken]).await?;
                    }
                    Ok::<_, std::io::Error>(())
                };
                let _ = tokio::join!(out, tokio::io::copy(&mut answers, &mut hears));
            });
        }
    });
    let answer = ask(address, "GET", &target("/share", ""), "").await;
    assert_eq!(answer.body, bytes());
    let sent = holder.content.sent_bytes();
    let name = token("ours").content(&sameness(), &Units::of(SIZE)).to_string();
    let recorded = recorded.lock().unwrap().clone();
    assert!(!recorded.is_empty());
    for bytes in recorded {
        assert!(!bytes.windows(name.len()).any(|some| some == name.as_bytes()));
        let mut stranger = TcpStream::connect(to).await.unwrap();
        let _ = stranger.write_all(&bytes).await;
        let mut answer = Vec::new();
        let _ = timeout(PATIENCE, stranger.read_to_end(&mut answer)).await.expect("in time");
        assert!(answer.len() < 10_000, "{}", answer.len());
    }
    assert_eq!(holder.content.sent_bytes(), sent);
}

#[tokio::test]
async fn a_server_that_cannot_prove_the_token_is_no_source() {
    let content = Content::bytes(bytes());
    let plain = Server::builder().file("/share", content.clone()).start().unwrap();
    let tls =
        Server::builder().file("/share", content).tls(Certificate::SelfSigned).start().unwrap();
    let addresses = [plain.address(), tls.address()];
    let (node, _) = node("ours").await;
    let ours = node.share(sharing(None, &addresses)).unwrap();
    // When one of ours was heard that began later, both were asked.
    let holder = Holder::start().await;
    let (friend, _) = self::node("ours").await;
    let _friends = friend.share(sharing(None, &[holder.address(), node.address()])).unwrap();
    until("friends know each other", || ours.others_lack() == 1).await;
    assert_eq!((plain.log().records.len(), tls.log().records.len()), (0, 0));
}

#[tokio::test]
async fn bytes_are_sent_in_ranges_with_the_version_of_the_origin() {
    let holder = Holder::start().await;
    holder.offers_all().await;
    let part = holder.part("bytes=1000-1999").await;
    assert_eq!(part.status, 206);
    assert_eq!(part.body, bytes()[1000..2000]);
    for line in [
        &*format!("content-range: bytes 1000-1999/{SIZE}"),
        "etag: \"7\"",
        "last-modified: sun, 06 nov 1994 08:49:37 gmt",
        "accept-ranges: bytes",
    ] {
        assert!(part.head.contains(line), "{line}: {}", part.head);
    }
    assert_eq!(holder.part("bytes=-10").await.body, bytes()[SIZE as usize - 10..]);
    let whole = holder.part("bytes=0-").await;
    assert!(whole.status == 200 && whole.body == bytes());
    let beyond = holder.part(&format!("bytes={SIZE}-")).await;
    assert_eq!(beyond.status, 416);
    assert!(beyond.head.contains(&format!("content-range: bytes */{SIZE}")), "{}", beyond.head);
    assert_eq!(holder.part("bytes=0-1,5-6").await.status, 416);
    let sent = 1000 + 10 + SIZE;
    until("all is counted", || holder.content.sent_bytes() == sent).await;
}

#[tokio::test]
async fn nothing_is_changed_by_requests() {
    let holder = Holder::start().await;
    for method in ["PUT", "POST", "DELETE"] {
        let target = target("/share", "");
        let answer = ask(holder.address(), method, &target, "content-length: 0\r\n").await;
        assert_eq!(answer.status, 405, "{method}");
        assert!(answer.head.contains("allow: get, head"), "{}", answer.head);
    }
    let head = ask(holder.address(), "HEAD", &target("/share", ""), "").await;
    assert!(head.body.is_empty());
}

#[tokio::test]
async fn a_node_that_has_nothing_yet_says_when_to_come_again() {
    let (node, _) = node("ours").await;
    let content = node.share(sharing(None, &[])).unwrap();
    let answer = ask(node.address(), "GET", &target("/share", ""), "range: bytes=0-0\r\n").await;
    assert_eq!(answer.status, 503);
    assert!(answer.head.contains("retry-after: 1"), "{}", answer.head);
    assert_eq!(content.sent_bytes(), 0);
}

#[tokio::test]
async fn the_log_of_a_whole_file_tells_the_hash_of_each_unit() {
    let holder = Holder::start().await;
    let units = Units::of(SIZE);
    let mut entries = Vec::new();
    let (mut from, mut names) = (0, Vec::new());
    while entries.len() < 4 {
        let part = holder.log(from).await;
        assert_eq!(part.next, from + part.entries.len() as u64);
        from = part.next;
        names.push(part.node);
        entries.extend(part.entries);
    }
    for entry in entries {
        let Entry::Held(unit, vouch) = entry else { panic!("{entry:?}") };
        let range = units.range(unit);
        let own = &bytes()[range.start as usize..range.end as usize];
        let wanted = block_hash(u64::from(unit), units.unit_bytes(), SIZE, own);
        assert_eq!((vouch.hash, vouch.by), (wanted, names[0]), "unit {unit}");
    }
    assert!(names.iter().all(|name| *name == names[0]));
    // Whoever has read more has read the log of another node.
    assert_eq!(holder.log(99).await.next, 0);
}

#[tokio::test]
async fn questions_that_no_node_asks_are_refused() {
    let holder = Holder::start().await;
    for more in [
        "",
        "&from=0&node=7",
        "&from=0&port=9",
        "&node=7&port=9",
        "&from=0&node=7&port=0",
        "&from=0&node=7&port=65536",
        "&from=-1&node=7&port=9",
        "&from=0&node=xyz&port=9",
    ] {
        let target = target("/share/log", more);
        assert_eq!(ask(holder.address(), "GET", &target, "").await.status, 400, "{more}");
    }
    assert!(holder.content.was_alone());
}

#[tokio::test]
async fn a_node_takes_units_from_one_that_it_was_told_of() {
    let holder = Holder::start().await;
    let (node, _) = node("ours").await;
    let content = node.share(sharing(None, &[holder.address()])).unwrap();
    let mut sources = content.sources();
    let source = timeout(PATIENCE, sources.recv()).await.expect("in time").expect("a source");
    let fetched = async {
        loop {
            match source.fetch_part(Range::new(5, 500_000)).await {
                Ok(fetched) => return fetched,
                // It has not been hashed yet.
                Err(_) => sleep(Duration::from_millis(50)).await,
            }
        }
    };
    let (facts, part) = timeout(PATIENCE, fetched).await.expect("in time");
    assert_eq!(part, bytes()[5..500_000]);
    assert_eq!(facts.etag.as_deref(), Some("\"7\""));
    assert!(!content.was_alone());
    // The other one has been asked by it, and asks back.
    until("both know each other", || holder.content.others_lack() == 1).await;
    assert!(!holder.content.was_alone());
    let met = holder.content.meets_others(Duration::ZERO);
    timeout(PATIENCE, met).await.expect("at once");
}

#[tokio::test]
async fn a_node_that_left_is_not_waited_for() {
    let holder = Holder::start().await;
    let (node, _) = node("ours").await;
    let content = node.share(sharing(None, &[holder.address()])).unwrap();
    until("both know each other", || holder.content.others_lack() == 1).await;
    drop((content, node));
    timeout(PATIENCE, holder.content.others_are_done()).await.expect("in time");
    until("it is forgotten", || holder.content.others_lack() == 0).await;
}

#[tokio::test]
async fn a_node_of_another_cluster_never_becomes_a_source() {
    let holder = Holder::start().await;
    let (stranger, _) = node("theirs").await;
    let theirs = stranger.share(sharing(None, &[holder.address()])).unwrap();
    // One of ours that began later has long found it.
    let (friend, _) = node("ours").await;
    let ours = friend.share(sharing(None, &[holder.address(), stranger.address()])).unwrap();
    until("friends know each other", || holder.content.others_lack() == 1).await;
    until("it has heard", || !ours.was_alone()).await;
    assert!(theirs.was_alone());
    assert_eq!(theirs.others_lack(), 0);
    assert_eq!(holder.content.others_lack(), 1, "the friend alone");
}

#[tokio::test]
async fn a_node_that_is_on_its_own_list_is_alone() {
    let (node, _) = node("ours").await;
    let content = node.share(sharing(None, &[node.address()])).unwrap();
    let (other, _) = self::node("ours").await;
    let others = other.share(sharing(None, &[node.address()])).unwrap();
    // When it has heard of another one, it has long asked itself.
    until("they meet", || content.others_lack() == 1 && others.others_lack() == 1).await;
    drop((other, others));
    until("it is alone", || content.others_lack() == 0).await;
}

#[tokio::test]
async fn what_cannot_be_shared_is_refused() {
    let (node, _) = node("ours").await;
    let of = |size_bytes, piece_bytes| {
        node.share(Sharing { size_bytes, piece_bytes, ..sharing(None, &[]) }).map(drop)
    };
    assert_eq!(of(0, None), Err(ShareError::Empty));
    assert_eq!(of((16 << 40) + 1, None), Err(ShareError::TooLarge));
    assert_eq!(of(SIZE, Some(65 << 20)), Err(ShareError::LargePieces));
    assert_eq!(of(SIZE, None), Ok(()));
    assert_eq!(of(SIZE, None), Err(ShareError::Twice));
    // Cut otherwise it is another content.
    assert_eq!(of(SIZE, Some(300_000)), Ok(()));
}

#[tokio::test]
async fn an_address_that_is_taken_is_an_error() {
    let (first, _) = node("ours").await;
    let (events, _told) = mpsc::channel(1);
    let options = NodeOptions {
        net: Net::new(NetOptions::default()).unwrap(),
        listen: first.address(),
        token: token("ours"),
        upload_bytes_per_s: None,
    };
    assert!(Node::start(options, events).await.is_err());
}
