//! The Diffie–Hellman exchange of message stream encryption: 2 to a power, modulo a prime of 768
//! bits (that of RFC 2409's first group, with other low bits).
//!
//! Numbers are twelve words of 64 bits, the lowest first. Products are reduced by Montgomery's
//! method. Time depends on the secret, which is used once and protects nothing of value.

use std::fmt;

/// Length of keys and of the shared secret, big-endian.
pub(super) const KEY_BYTES: usize = WORDS * 8;

/// The secret number of one side.
pub(super) struct Secret([u8; 20]);

impl Secret {
    /// Returns the secret made of 20 random bytes.
    pub fn new(random: [u8; 20]) -> Secret {
        Secret(random)
    }

    /// Returns the key that the other side gets.
    pub fn public(&self) -> [u8; KEY_BYTES] {
        let mut two = [0; WORDS];
        two[0] = 2;
        to_bytes(power(&two, &self.0))
    }

    /// Returns what both sides know, from the key of the other side; `None` if that is one of the
    /// numbers whose powers are known: 0, 1 and -1, or not less than the prime.
    pub fn shared(&self, key: &[u8; KEY_BYTES]) -> Option<[u8; KEY_BYTES]> {
        let key = from_bytes(key);
        let mut last = PRIME;
        last[0] -= 1;
        let is_valid = is_less(&ONE, &key) && is_less(&key, &last);
        is_valid.then(|| to_bytes(power(&key, &self.0)))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

type Number = [u64; WORDS];

/// Returns `base` to the power of a big-endian exponent, modulo the prime.
fn power(base: &Number, exponent: &[u8]) -> Number {
    // Montgomery's form of x is x × 2^768. That of 1 is found by doubling, like that of 2^768.
    let one = (0..768).fold(ONE, |number, _| double(&number));
    let square = (0..768).fold(one, |number, _| double(&number));
    let base = product(base, &square);
    let mut result = one;
    for bit in exponent.iter().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1)) {
        result = product(&result, &result);
        if bit == 1 {
            result = product(&result, &base);
        }
    }
    product(&result, &ONE)
}

/// Returns `a × b / 2^768` modulo the prime; both are less than it.
fn product(a: &Number, b: &Number) -> Number {
    // One word more than a number, and a bit above it.
    let mut sum = [0u64; WORDS + 1];
    let mut top = 0;
    for word in a {
        let carry = add_product(&mut sum, b, *word);
        top += u64::from(carry);
        let factor = sum[0].wrapping_mul(INVERSE);
        let carry = add_product(&mut sum, &PRIME, factor);
        top += u64::from(carry);
        // The lowest word is zero now.
        sum.rotate_left(1);
        sum[WORDS] = std::mem::take(&mut top);
    }
    let mut result = [0; WORDS];
    result.copy_from_slice(&sum[..WORDS]);
    if sum[WORDS] != 0 || !is_less(&result, &PRIME) { minus_prime(&result) } else { result }
}

/// Adds `number × factor`; returns whether the sum overflows.
fn add_product(sum: &mut [u64; WORDS + 1], number: &Number, factor: u64) -> bool {
    let mut carry = 0u128;
    for (word, other) in sum.iter_mut().zip(number) {
        carry += u128::from(*word) + u128::from(*other) * u128::from(factor);
        *word = carry as u64;
        carry >>= 64;
    }
    let (last, is_over) = sum[WORDS].overflowing_add(carry as u64);
    sum[WORDS] = last;
    is_over
}

/// Returns twice a number that is less than the prime, modulo the prime.
fn double(number: &Number) -> Number {
    let is_over = number[WORDS - 1] >> 63 == 1;
    let twice =
        std::array::from_fn(|i| number[i] << 1 | if i == 0 { 0 } else { number[i - 1] >> 63 });
    if is_over || !is_less(&twice, &PRIME) { minus_prime(&twice) } else { twice }
}

/// Returns a number less the prime, modulo 2^768.
fn minus_prime(number: &Number) -> Number {
    let mut is_borrowed = false;
    std::array::from_fn(|i| {
        let (word, a) = number[i].overflowing_sub(PRIME[i]);
        let (word, b) = word.overflowing_sub(u64::from(is_borrowed));
        is_borrowed = a || b;
        word
    })
}

fn is_less(a: &Number, b: &Number) -> bool {
    a.iter().rev().lt(b.iter().rev())
}

fn from_bytes(bytes: &[u8; KEY_BYTES]) -> Number {
    let (words, _) = bytes.as_chunks::<8>();
    std::array::from_fn(|i| u64::from_be_bytes(words[WORDS - 1 - i]))
}

fn to_bytes(number: Number) -> [u8; KEY_BYTES] {
    let mut bytes = [0; KEY_BYTES];
    let (words, _) = bytes.as_chunks_mut::<8>();
    words.iter_mut().zip(number.iter().rev()).for_each(|(out, word)| *out = word.to_be_bytes());
    bytes
}

const WORDS: usize = 12;

const ONE: Number = [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// The prime of the specification.
const PRIME: Number = [
    0x0000_0000_0009_0563,
    0xf44c_42e9_a63a_3621,
    0xe485_b576_625e_7ec6,
    0x4fe1_356d_6d51_c245,
    0x302b_0a6d_f25f_1437,
    0xef95_19b3_cd3a_431b,
    0x514a_0879_8e34_04dd,
    0x020b_bea6_3b13_9b22,
    0x2902_4e08_8a67_cc74,
    0xc4c6_628b_80dc_1cd1,
    0xc90f_daa2_2168_c234,
    0xffff_ffff_ffff_ffff,
];

/// -1 / the prime, modulo 2^64.
const INVERSE: u64 = 0x6d5d_6e69_9507_5bb5;

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> [u8; KEY_BYTES] {
        std::array::from_fn(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap())
    }

    #[test]
    fn the_inverse_is_one() {
        assert_eq!(PRIME[0].wrapping_mul(INVERSE), u64::MAX);
    }

    // Computed by Python: pow(base, exponent, prime).
    #[test]
    fn known_powers() {
        let secret = |hex: &str| {
            Secret::new(std::array::from_fn(|i| {
                u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap()
            }))
        };
        for (exponent, expected) in [
            (
                "0000000000000000000000000000000000000000",
                "00000000000000000000000000000000000000000000000000000000000000000000000000000000\
             00000000000000000000000000000000000000000000000000000000000000000000000000000000\
             00000000000000000000000000000001",
            ),
            (
                "0000000000000000000000000000000000000001",
                "00000000000000000000000000000000000000000000000000000000000000000000000000000000\
             00000000000000000000000000000000000000000000000000000000000000000000000000000000\
             00000000000000000000000000000002",
            ),
            (
                "0102030405060708090a0b0c0d0e0f1011121314",
                "96e112dab29e8c5272accb9b17b26887ce54a144a4e3b697c7d159b7a817e556b0918db2b4c658e0\
             2a87f7e5fb14b18a553e084cbf3dad2d30f16596ccb982d406258c61b30c5c1dae2ddc60bdbd48d7\
             9896312aad63238c39e1a633821eb693",
            ),
            (
                "ffffffffffffffffffffffffffffffffffffffff",
                "fe9aac142f64ad4d5bca7e30bea17d62c709de9e4c5694e2b27e8c6ed82510bb57952fcce38f6a50\
             84b9699ec34b033ed1a0dbd51d70274bff40ae493f0ce2cdbd3cbd6055c9677a7eb70d29f4d8ecfb\
             c2625316a7ae1a0d3d6605f0406bad79",
            ),
        ] {
            assert_eq!(secret(exponent).public(), bytes(expected), "{exponent}");
        }
        for (base, exponent, expected) in [
            (
                "ffffffffffffffffc90fdaa22168c234c4c6628b80dc1cd129024e088a67cc74020bbea63b139b22\
             514a08798e3404ddef9519b3cd3a431b302b0a6df25f14374fe1356d6d51c245e485b576625e7ec6\
             f44c42e9a63a36210000000000090561",
                "cb91ce375bc8fbbcbde5c0994164d8399f767c45",
                "7e0b15c860382228e7f453e4ead5058bbda7bf0bf4aa5fcc6157cf426574f74360bbf6416917d0eb\
             e0e0e04c14ec99d6b31d4be813fe2692c0a1d556c6906e24ca7ca593e223ae3a71bc9454fed49927\
             495af871744420e6de4efb76dc3896a9",
            ),
            (
                "8b33e968617959ce3f1f65a8de5271007814e8a25f2dd97f1cfb10f62827688de6a16a3b0d464138\
             a62332553fc1ea36f17fd374c6a5387777330bdbd7210dff076ce2ef87b0b125ec1d7da0a6eb8c9e\
             bd69fe29d76d4330f1446beab0c11fe0",
                "bb2edb20035b73993fd4235992edcf451a1afe87",
                "8c120a550e94ec7ed61be45ba942b05a99ead5842811cc4af3580d0e7daa8b16be02c0fd9ae74fd9\
             78585c3542484b0989faf07063c60f8c8b999d74ea86498be5092814c100cf5a9b81b48016ec13ab\
             30f10a99fb458625ae58c41b98e3811d",
            ),
            (
                "c60a3cab359eeefb015c33b2df1461aaf8eb18b90074513021da8978206f5c6671e0c07e9e115e4b\
             9e30691c238642ea126a1e48cc11d357c30d8b7628dbd25e63b229f1c4069545de11cc9dea959c21\
             2e9c82b1478c281d687c966c377b9aa4",
                "df561d802a759159fb7ff337f5cae3bf3729c619",
                "26258d9baf1079be9f7d9d577f6581955aa92fb1091812de0ad8cd7c3f326e6e8e7c85c7e8a8604e\
             9b1a5d0429b9f557fdde690f77d3a6502eaab77a47fe2a1f480ba935165c4abf0a77d03286056f29\
             81a407ee45aa82c5cdce9e3361f9c121",
            ),
        ] {
            assert_eq!(secret(exponent).shared(&bytes(base)), Some(bytes(expected)), "{exponent}");
        }
    }

    #[test]
    fn known_powers_are_refused_as_keys() {
        let secret = Secret::new([7; 20]);
        let mut near = [to_bytes(PRIME); 4];
        near.iter_mut().zip(0..).for_each(|(key, below)| key[95] -= below);
        for (key, is_valid) in [
            ([0; KEY_BYTES], false),
            (to_bytes(ONE), false),
            (near[0], false),
            (near[1], false),
            (near[2], true),
            ([0xff; KEY_BYTES], false),
        ] {
            assert_eq!(secret.shared(&key).is_some(), is_valid);
        }
    }
}
