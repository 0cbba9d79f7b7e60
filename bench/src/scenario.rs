//! The situations in which downloads are compared.
//!
//! All but the last two use the star of six mirrors: 20, 40, 60, 80, 120 and 180 Mbit/s at
//! one-way delays of 60 down to 10 ms, with queues of 100 ms.

use std::time::Duration;

use swath_netlab::star::{LinkSpec, StarSpec};
use swath_netlab::wan::{MTU_BYTES, Schedule};

use crate::tool::Tool;

/// One situation.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Short name, for the command line.
    pub name: &'static str,
    /// What happens, in one line.
    pub title: &'static str,
    /// The links and servers.
    pub star: StarSpec,
    /// What changes while the transfer runs.
    pub schedule: Schedule,
    /// Bytes transferred.
    pub size_bytes: u64,
    /// Who takes part unless the user says otherwise.
    pub tools: &'static [Tool],
}

impl Scenario {
    /// The least time that the links allow: the size with TCP/IP framing over the sum of the
    /// rates, integrated where they change. Loss and slow start are not taken off.
    pub fn bound(&self) -> Option<Duration> {
        self.schedule.time_to_carry(&self.star.rates_bits_per_s(), self.wire_bits())
    }

    /// What each link carries within the bound: the oracle's shares. `None` when a link falls
    /// silent, because a share in flight there would never end.
    pub fn exact_shares(&self) -> Option<Vec<f64>> {
        use swath_netlab::wan::Change::Silent;
        if self.schedule.steps().iter().any(|step| matches!(step.change, Silent(true))) {
            return None;
        }
        Some(self.schedule.carried_bits(&self.star.rates_bits_per_s(), self.bound()?))
    }

    /// Position of the link with the highest rate.
    pub fn best_link(&self) -> usize {
        let rates = self.star.rates_bits_per_s();
        (0..rates.len()).max_by_key(|link| rates[*link]).unwrap_or(0)
    }

    fn wire_bits(&self) -> f64 {
        self.size_bytes as f64 * 8.0 * MTU_BYTES as f64 / PAYLOAD_BYTES
    }
}

/// All scenarios, in the order in which they are shown. `seed` decides losses and jumps.
pub fn scenarios(seed: u64) -> Vec<Scenario> {
    let star = StarSpec { seed, ..StarSpec::six_mirrors() };
    let rates = star.rates_bits_per_s();
    let basic = Scenario {
        name: "static256",
        title: "six mirrors, nothing changes, 256 MiB",
        star: star.clone(),
        schedule: Schedule::none(),
        size_bytes: 256 * MIB,
        tools: STAR_TOOLS,
    };
    let mut far = star.clone();
    if let Some(last) = far.links.last_mut() {
        last.one_way_delay += Duration::from_millis(250);
    }
    vec![
        Scenario { tools: ALL_STAR_TOOLS, ..basic.clone() },
        Scenario {
            name: "static1g",
            title: "six mirrors, nothing changes, 1 GiB",
            size_bytes: 1024 * MIB,
            ..basic.clone()
        },
        Scenario {
            name: "cut",
            title: "the fastest link falls to a tenth after 2 s",
            schedule: Schedule::cut(&rates, EVENT),
            ..basic.clone()
        },
        Scenario {
            name: "silent",
            title: "the fastest link goes silent after 2 s",
            schedule: Schedule::silent(&rates, EVENT),
            ..basic.clone()
        },
        Scenario {
            name: "jump",
            title: "every 0.5 s a random link gets a random rate",
            schedule: Schedule::jump(rates.len(), JUMP_EVERY, JUMP_LENGTH, seed),
            ..basic.clone()
        },
        Scenario {
            name: "loss",
            title: "0.5 % of the packets are lost on every link",
            star: StarSpec { loss: 0.005, ..star },
            ..basic.clone()
        },
        Scenario {
            name: "latency500",
            title: "the fastest link has 500 ms more round trip, 1 GiB",
            star: far,
            size_bytes: 1024 * MIB,
            ..basic
        },
        Scenario {
            name: "lanes-loss",
            title: "one source, 100 Mbit/s, 40 ms round trip, CUBIC, 2 % loss",
            star: StarSpec {
                loss: 0.02,
                seed,
                congestion_control: Some("cubic".to_owned()),
                ..StarSpec::new(vec![LinkSpec::new(100, 20)])
            },
            schedule: Schedule::none(),
            size_bytes: 16 * MIB,
            tools: LANE_TOOLS,
        },
        Scenario {
            name: "lanes-window",
            title: "one source, 500 Mbit/s, 40 ms round trip, windows of 256 KiB",
            star: StarSpec {
                seed,
                send_buffer_bytes: Some(SEND_BUFFER_OF_256_KIB_WINDOW),
                ..StarSpec::new(vec![LinkSpec::new(500, 20)])
            },
            schedule: Schedule::none(),
            size_bytes: 256 * MIB,
            tools: LANE_TOOLS,
        },
    ]
}

const ALL_STAR_TOOLS: &[Tool] = &[
    Tool::Swath,
    Tool::SwathMdtp,
    Tool::SwathFixed,
    Tool::SwathSingle,
    Tool::Aria2,
    Tool::Aria2Tuned,
    Tool::Curl,
    Tool::Oracle,
];

/// Without those that use one mirror only: they take long and always say the same.
const STAR_TOOLS: &[Tool] =
    &[Tool::Swath, Tool::SwathMdtp, Tool::SwathFixed, Tool::Aria2, Tool::Aria2Tuned, Tool::Oracle];

const LANE_TOOLS: &[Tool] = &[Tool::Swath, Tool::SwathOneLane, Tool::Aria2Sixteen];

const MIB: u64 = 1 << 20;
const EVENT: Duration = Duration::from_secs(2);
const JUMP_EVERY: Duration = Duration::from_millis(500);

/// Longer than any run.
const JUMP_LENGTH: Duration = Duration::from_secs(600);

/// TCP payload of a full packet: 20 bytes of IP, 20 of TCP and 12 of time stamps are taken off.
pub const PAYLOAD_BYTES: f64 = (MTU_BYTES - 52) as f64;

/// The kernel accounts for more than the payload of what it holds: measured, this much lets
/// 256 KiB travel.
const SEND_BUFFER_OF_256_KIB_WINDOW: u64 = 316 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scenario_has_a_bound_and_its_own_name() {
        let all = scenarios(1);
        for (position, scenario) in all.iter().enumerate() {
            assert!(scenario.bound().is_some(), "{}", scenario.name);
            assert!(all[..position].iter().all(|other| other.name != scenario.name));
        }
        let bound_s = all[0].bound().unwrap().as_secs_f64();
        assert!((4.44..4.46).contains(&bound_s), "{bound_s}");
    }

    #[test]
    fn shares_follow_the_rates_and_silence_has_none() {
        let all = scenarios(1);
        let named = |name| all.iter().find(|scenario| scenario.name == name).unwrap();
        let shares = named("static256").exact_shares().unwrap();
        assert!((shares[5] / shares[0] - 9.0).abs() < 1e-9);
        assert!(named("silent").exact_shares().is_none());
        assert_eq!(named("silent").best_link(), 5);
    }
}
