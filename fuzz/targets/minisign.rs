//! Any text as a key or a signature of minisign: no panic, and what is read is written again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use swath_formats::minisign::{PublicKey, SecretKey, Signature};

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = str::from_utf8(bytes) else { return };
    if let Ok(key) = PublicKey::read(text) {
        assert_eq!(PublicKey::read(&key.write()).as_ref(), Ok(&key));
    }
    if let Ok(key) = SecretKey::read(text) {
        let again = SecretKey::read(&key.write()).unwrap();
        assert_eq!(again.public(), key.public());
    }
    if let Ok(signature) = Signature::read(text) {
        assert_eq!(Signature::read(&signature.write()).as_ref(), Ok(&signature));
        let key = PublicKey { id: signature.key, key: [9; 32] };
        assert!(key.verify(bytes, &signature).is_err());
    }
});
