//! Address blocks, such as `192.0.2.0/24` (RFC 4632) and `2001:db8::/32` (RFC 4291, section 2.3).

use core::fmt;
use core::net::IpAddr;
use core::str::FromStr;

use ipnet::IpNet;

/// An address block, such as `192.0.2.0/24` or `2001:db8::/32`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network(IpNet);

/// The text is not an address block.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not an address block (such as 192.0.2.0/24, 2001:db8::/32 or a single address)")]
pub struct NetworkError(String);

impl Network {
    /// Returns whether it has every address of its kind.
    pub fn is_everything(&self) -> bool {
        self.0.prefix_len() == 0
    }

    /// Returns whether it is wider than any private network: `10.0.0.0/8` and `fc00::/7` are the
    /// widest (RFC 1918, RFC 4193). Two such blocks may cover everything.
    pub fn is_wide(&self) -> bool {
        self.0.prefix_len() < if self.0.addr().is_ipv4() { 8 } else { 7 }
    }

    /// Returns whether it has this address.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.contains(&address)
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Network, NetworkError> {
        let single = || text.parse::<IpAddr>().map(IpNet::from);
        let block =
            text.parse().or_else(|_| single()).map_err(|_| NetworkError(text.to_owned()))?;
        // Clients are compared by their canonical addresses, and users write mapped addresses (RFC
        // 4291, section 2.5.5.2) for IPv4 ones too.
        let mapped = block.prefix_len().checked_sub(MAPPED_BITS).and_then(|bits| {
            IpNet::new(block.addr().to_canonical(), bits).ok().filter(|net| net.addr().is_ipv4())
        });
        Ok(Network(mapped.unwrap_or(block)))
    }
}

/// The prefix length of `::ffff:0:0/96`, the block of mapped addresses.
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
