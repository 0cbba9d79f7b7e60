//! Signed tokens, and keys that come, change and go.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use rcgen::PublicKeyData as _;
use swath_formats::scope::Act;

use super::*;

const ISSUER: &str = "https://iam.example/";
const NOW_S: u64 = 1_000_000;

fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(NOW_S)
}

/// A key of an issuer, with its name.
struct Signer {
    id: &'static str,
    key: rcgen::KeyPair,
}

impl Signer {
    fn new(id: &'static str) -> Signer {
        Signer { id, key: rcgen::KeyPair::generate().unwrap() }
    }

    fn jwk(&self) -> String {
        let point = self.key.der_bytes();
        let [x, y] = [&point[1..33], &point[33..]].map(|part| URL_SAFE_NO_PAD.encode(part));
        let id = self.id;
        format!(r#"{{"kty":"EC","crv":"P-256","use":"sig","kid":"{id}","x":"{x}","y":"{y}"}}"#)
    }

    fn token(&self, subject: &str, scope: &str) -> String {
        let header = Header { kid: Some(self.id.to_owned()), ..Header::new(Algorithm::ES256) };
        let claims = serde_json::json!({
            "iss": ISSUER, "sub": subject, "aud": "https://wlcg.cern.ch/jwt/v1/any",
            "exp": NOW_S + 600, "wlcg.ver": "1.0", "scope": scope,
        });
        let key = EncodingKey::from_ec_der(&self.key.serialize_der());
        encode(&header, &claims, &key).unwrap()
    }
}

fn keys(of: &[&Signer]) -> KeySet {
    let all: Vec<String> = of.iter().map(|signer| signer.jwk()).collect();
    KeySet::read(format!("{{\"keys\":[{}]}}", all.join(",")).as_bytes()).unwrap()
}

fn trusted(keys: Option<KeySet>) -> Vec<TrustedIssuer> {
    vec![TrustedIssuer { issuer: ISSUER.to_owned(), base_path: "/".to_owned(), keys }]
}

#[test]
fn a_token_permits_what_it_says_and_nothing_when_it_was_changed() {
    let signer = Signer::new("one");
    let issuers = Issuers::new(trusted(Some(keys(&[&signer]))), Vec::new());
    let token = signer.token("ada", "storage.read:/a");
    // The second time it is remembered.
    for _ in 0..2 {
        let (scopes, who) = issuers.verify(&token, now()).unwrap();
        assert!(scopes.permit(Act::Read, b"a/b") && !scopes.permit(Act::Read, b"b"));
        assert_eq!(who, Who::of_subject(ISSUER, "ada"));
    }
    let later = now() + Duration::from_secs(600);
    assert_eq!(issuers.verify(&token, later).err(), Some(TokenRefusal::Expired));
    let other = signer.token("ada", "storage.read:/");
    let (parts, others) = (token.split('.'), other.split('.'));
    let (parts, others): (Vec<_>, Vec<_>) = (parts.collect(), others.collect());
    let mixed = [others[0], others[1], parts[2]].join(".");
    assert_eq!(issuers.verify(&mixed, now()).err(), Some(TokenRefusal::Signature));
    let stranger = Signer::new("one").token("ada", "storage.read:/");
    assert_eq!(issuers.verify(&stranger, now()).err(), Some(TokenRefusal::Signature));
    let unknown = Signer::new("two").token("ada", "storage.read:/");
    assert_eq!(issuers.verify(&unknown, now()).err(), Some(TokenRefusal::Key));
    let strange =
        vec![TrustedIssuer { issuer: "https://other/".to_owned(), ..trusted(None).remove(0) }];
    assert_eq!(
        Issuers::new(strange, Vec::new()).verify(&token, now()).err(),
        Some(TokenRefusal::Issuer)
    );
    assert_eq!(issuers.verify("a.b.c", now()).err(), Some(TokenRefusal::Form));
}

#[test]
fn a_key_that_is_taken_away_takes_its_tokens_with_it() {
    let (one, two) = (Signer::new("one"), Signer::new("two"));
    let issuers = Issuers::new(trusted(None), Vec::new());
    let token = one.token("ada", "storage.read:/");
    assert_eq!(issuers.verify(&token, now()).err(), Some(TokenRefusal::NoKeys));
    issuers.set_keys(ISSUER, Some(keys(&[&one, &two])));
    assert!(issuers.verify(&token, now()).is_ok());
    issuers.set_keys(ISSUER, Some(keys(&[&two])));
    assert_eq!(issuers.verify(&token, now()).err(), Some(TokenRefusal::Key));
    // Keys that were fetched stay when the list of issuers is read again.
    let again = two.token("ada", "storage.read:/");
    issuers.set_trusted(trusted(None));
    assert!(issuers.verify(&again, now()).is_ok());
    issuers.set_trusted(Vec::new());
    assert_eq!(issuers.verify(&again, now()).err(), Some(TokenRefusal::Issuer));
}

#[tokio::test(start_paused = true)]
async fn a_new_key_is_asked_for_at_once_and_then_not_for_a_minute() {
    let (one, two) = (Signer::new("one"), Signer::new("two"));
    let issuers = Issuers::new(trusted(None), Vec::new());
    issuers.set_keys(ISSUER, Some(keys(&[&one])));
    let fetches = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let (fetcher, counted, both) = (issuers.clone(), Arc::clone(&fetches), keys(&[&one, &two]));
    tokio::spawn(async move {
        loop {
            fetcher.asked(ISSUER).await;
            let _fetching = fetcher.fetching(ISSUER);
            tokio::time::sleep(Duration::from_secs(1)).await;
            counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            fetcher.set_keys(ISSUER, Some(both.clone()));
        }
    });
    let known = one.token("ada", "storage.read:/");
    issuers.ready(&known).await;
    let new = two.token("ada", "storage.read:/");
    // Two at a time wait for one fetch.
    tokio::join!(issuers.ready(&new), issuers.ready(&new));
    assert!(issuers.verify(&new, now()).is_ok());
    let odd = Signer::new("three").token("ada", "storage.read:/");
    let began = Instant::now();
    for _ in 0..3 {
        issuers.ready(&odd).await;
    }
    assert_eq!(began.elapsed(), Duration::ZERO, "nobody waits for a key that was just asked for");
    assert_eq!(fetches.load(std::sync::atomic::Ordering::Relaxed), 1);
    tokio::time::sleep(Duration::from_secs(61)).await;
    issuers.ready(&odd).await;
    assert_eq!(fetches.load(std::sync::atomic::Ordering::Relaxed), 2);
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_long_for_keys_that_do_not_come() {
    let issuers = Issuers::new(trusted(None), Vec::new());
    let _fetching = issuers.fetching(ISSUER);
    let began = Instant::now();
    issuers.ready(&Signer::new("one").token("ada", "storage.read:/")).await;
    assert_eq!(began.elapsed(), WAIT_FOR_KEYS);
}

#[test]
fn sets_of_keys_hold_only_what_anybody_can_check() {
    let count = |keys: &str| KeySet::read(keys.as_bytes()).map_or(0, |keys| keys.count());
    let good = Signer::new("one").jwk();
    assert_eq!(count(&format!("{{\"keys\":[{good}]}}")), 1);
    let (encrypts, other) = (good.replace("\"sig\"", "\"enc\""), good.replace("P-256", "P-521"));
    let secret = r#"{"kty":"oct","kid":"s","k":"c2VjcmV0"}"#;
    let new = r#"{"kty":"AKP","alg":"ML-DSA-44","pub":"AAAA"}"#;
    let wrong = good.replace("\"kid\"", "\"alg\":\"RS256\",\"kid\"");
    assert_eq!(
        count(&format!("{{\"keys\":[{encrypts},{other},{secret},{new},{wrong},7,{good}]}}")),
        1
    );
    for none in ["", "[]", "{}", r#"{"keys":[]}"#, &format!("{{\"keys\":[{secret}]}}")] {
        assert!(KeySet::read(none.as_bytes()).is_err(), "{none}");
    }
    assert!(matches!(KeySet::read(&vec![b' '; keys::KEYS_BYTES_MAX + 1]), Err(KeysError::TooLong)));
}
