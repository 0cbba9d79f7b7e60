//! Blocks of addresses, as `192.0.2.0/24` (RFC 4632) and `2001:db8::/32` (RFC 4291, section 2.3).

use core::net::IpAddr;

/// A block of addresses, as `192.0.2.0/24` or `2001:db8::/32`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

/// What is no block of addresses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no block of addresses (such as 192.0.2.0/24, 2001:db8::/32 or a single address)")]
pub struct NetworkError(String);

impl Network {
    /// Whether it has every address of its kind.
    pub fn is_everything(&self) -> bool {
        self.bits == 0
    }

    /// Whether it is wider than any network of one's own: `10.0.0.0/8` and `fc00::/7` are the widest
    /// (RFC 1918, RFC 4193). Two such may be everything together.
    pub fn is_wide(&self) -> bool {
        self.bits < if self.address.is_ipv4() { 8 } else { 7 }
    }

    /// Whether it has this address.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let differs = u32::from(own) ^ u32::from(other);
                differs.leading_zeros() >= u32::from(self.bits)
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let differs = u128::from(own) ^ u128::from(other);
                differs.leading_zeros() >= u32::from(self.bits)
            }
            _ => false,
        }
    }
}

impl std::fmt::Display for Network {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

impl std::str::FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Network, NetworkError> {
        let failed = || NetworkError(text.to_owned());
        let (address, bits) = text.split_once('/').map_or((text, None), |(a, b)| (a, Some(b)));
        let address: IpAddr = address.parse().map_err(|_| failed())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits: u8 = match bits {
            Some(bits) if bits.bytes().all(|byte| byte.is_ascii_digit()) => {
                bits.parse().map_err(|_| failed())?
            }
            Some(_) => return Err(failed()),
            None => most,
        };
        if bits > most {
            return Err(failed());
        }
        // Who comes is known by the address of its own kind; this is how that one is written too.
        match (address, bits.checked_sub(MAPPED_BITS)) {
            (IpAddr::V6(six), Some(bits)) if six.to_ipv4_mapped().is_some() => {
                Ok(Network { address: address.to_canonical(), bits })
            }
            _ => Ok(Network { address, bits }),
        }
    }
}

/// Of `::ffff:0:0/96`, where addresses of the older kind lie (RFC 4291, 2.5.5.2).
const MAPPED_BITS: u8 = 96;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_have_their_own() {
        for wrong in ["", "192.0.2.0/33", "::/129", "192.0.2/24", "a/1", "10.0.0.0/+8", "10.0.0.0/"]
        {
            assert!(wrong.parse::<Network>().is_err(), "{wrong}");
        }
        let mapped: Network = "::ffff:192.0.2.0/120".parse().unwrap();
        assert_eq!(mapped, "192.0.2.0/24".parse().unwrap());
        for (text, is_wide) in [
            ("10.0.0.0/8", false),
            ("128.0.0.0/7", true),
            ("fc00::/7", false),
            ("2000::/3", true),
            ("0.0.0.0/0", true),
            ("::/0", true),
        ] {
            let network: Network = text.parse().unwrap();
            assert_eq!((network.is_wide(), network.to_string().as_str()), (is_wide, text));
        }
        let all: Network = "0.0.0.0/0".parse().unwrap();
        assert!(
            all.contains("255.1.2.3".parse().unwrap()) && !all.contains("::1".parse().unwrap())
        );
    }
}
