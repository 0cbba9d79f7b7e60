//! What a star looks like, as data.

use std::str::FromStr;
use std::time::Duration;

use crate::wan::{LabError, Queue, Shape};

/// Rate and delay of one link, the same in both directions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkSpec {
    /// Bits a second on the wire, IP headers included.
    pub rate_bits_per_s: u64,
    /// Half of the round-trip time of an idle link.
    pub one_way_delay: Duration,
}

impl LinkSpec {
    /// Returns a link from the units that people use.
    pub const fn new(rate_mbit_per_s: u64, one_way_delay_ms: u64) -> Self {
        Self {
            rate_bits_per_s: rate_mbit_per_s * 1_000_000,
            one_way_delay: Duration::from_millis(one_way_delay_ms),
        }
    }
}

impl FromStr for LinkSpec {
    type Err = String;

    /// Reads `RATE/DELAY`, in Mbit/s and milliseconds, for example `20/60` or `2.5/0.4`.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("'{text}' is not RATE/DELAY in Mbit/s and ms, for example 20/60");
        let (rate, delay) = text.split_once('/').ok_or_else(wrong)?;
        let rate: f64 = rate.trim().parse().map_err(|_| wrong())?;
        let delay: f64 = delay.trim().parse().map_err(|_| wrong())?;
        if !(rate > 0.0 && rate <= 1e5 && (0.0..=1e5).contains(&delay)) {
            return Err(wrong());
        }
        Ok(Self {
            rate_bits_per_s: (rate * 1e6) as u64,
            one_way_delay: Duration::from_secs_f64(delay / 1e3),
        })
    }
}

/// A star and the TCP parameters of its ends.
#[derive(Clone, Debug, PartialEq)]
pub struct StarSpec {
    /// One server at the end of each.
    pub links: Vec<LinkSpec>,
    /// Of every direction of every link.
    pub queue: Queue,
    /// Probability of loss of a packet, in every direction of every link.
    pub loss: f64,
    /// Decides which packets are lost.
    pub seed: u64,
    /// Congestion control of the servers; `None` leaves the machine's own.
    pub congestion_control: Option<String>,
    /// Largest send buffer of a server's connection; `None` leaves the machine's own. The
    /// kernel keeps about half of it for its own book-keeping.
    pub send_buffer_bytes: Option<u64>,
    /// Largest receive buffer of the client's connections; `None` leaves the machine's own.
    pub receive_buffer_bytes: Option<u64>,
}

impl StarSpec {
    /// Clean links with queues of 100 ms.
    pub fn new(links: Vec<LinkSpec>) -> Self {
        Self {
            links,
            queue: Queue::Time(Duration::from_millis(100)),
            loss: 0.0,
            seed: 1,
            congestion_control: None,
            send_buffer_bytes: None,
            receive_buffer_bytes: None,
        }
    }

    /// Returns the star of six unequal mirrors on which swath is measured.
    pub fn six_mirrors() -> Self {
        Self::new(SIX_MIRRORS.to_vec())
    }

    /// Returns the rate of every link, in bits a second.
    pub fn rates_bits_per_s(&self) -> Vec<u64> {
        self.links.iter().map(|link| link.rate_bits_per_s).collect()
    }

    pub(super) fn shape(&self, link: usize) -> Shape {
        let LinkSpec { rate_bits_per_s, one_way_delay } = self.links[link];
        Shape { loss: self.loss, queue: self.queue, ..Shape::new(rate_bits_per_s, one_way_delay) }
    }

    pub(super) fn check(&self) -> Result<(), LabError> {
        let bad = |link, reason| Err(LabError::BadLink { link, reason });
        if self.links.len() > MAX_LINKS {
            return bad(self.links.len(), "a star has at most 250 links");
        }
        for (position, link) in self.links.iter().enumerate() {
            if link.rate_bits_per_s == 0 {
                return bad(position + 1, "its rate is zero");
            }
        }
        Ok(())
    }
}

/// Rates of 20 to 180 Mbit/s, the slowest the farthest.
pub(crate) const SIX_MIRRORS: [LinkSpec; 6] = [
    LinkSpec::new(20, 60),
    LinkSpec::new(40, 50),
    LinkSpec::new(60, 40),
    LinkSpec::new(80, 30),
    LinkSpec::new(120, 20),
    LinkSpec::new(180, 10),
];

/// Each link takes one /24 of 10.77.0.0/16.
const MAX_LINKS: usize = 250;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_read() {
        assert_eq!("20/60".parse(), Ok(LinkSpec::new(20, 60)));
        let fine: LinkSpec = "2.5/0.4".parse().unwrap();
        assert_eq!(fine.rate_bits_per_s, 2_500_000);
        assert_eq!(fine.one_way_delay, Duration::from_micros(400));
        for bad in ["", "20", "0/10", "-1/10", "20/-1", "a/b", "NaN/1", "1/inf"] {
            assert!(bad.parse::<LinkSpec>().is_err(), "{bad}");
        }
    }

    #[test]
    fn impossible_stars_are_refused() {
        assert!(StarSpec::new(vec![LinkSpec::new(0, 1)]).check().is_err());
        assert!(StarSpec::new(vec![LinkSpec::new(1, 1); 251]).check().is_err());
        assert!(StarSpec::six_mirrors().check().is_ok());
    }
}
