//! Changes to links planned in advance, and what the links can carry under them.
//!
//! A schedule is data: the engine carries it out from the moment it is triggered, and the same
//! data gives the physical bound of a transfer, by integrating the rates over time.

use std::time::Duration;

use super::{Queue, Shape};

/// One direction of a link. A star has its client at the near end, a mesh the site that its map
/// names first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the far end to the near one.
    Down,
    /// From the near end to the far one.
    Up,
}

/// What a change concerns: a link, or one direction of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// Position of the link, from 0.
    pub link: usize,
    /// This direction alone; `None` is both.
    pub only: Option<Direction>,
}

impl Target {
    /// Both directions of a link.
    pub const fn both(link: usize) -> Self {
        Self { link, only: None }
    }

    /// Returns whether the change concerns this direction of this link.
    pub fn includes(self, direction: Direction) -> bool {
        self.only.is_none_or(|only| only == direction)
    }
}

/// One change to a link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Change {
    /// A new rate in bits a second.
    RateBitsPerS(u64),
    /// A new one-way delay.
    OneWayDelay(Duration),
    /// A new probability of loss, 0 to 1.
    Loss(f64),
    /// A new queue limit.
    Queue(Queue),
    /// Silent or alive again.
    Silent(bool),
}

impl Change {
    /// Returns the shape after the change.
    pub fn apply(self, shape: Shape) -> Shape {
        match self {
            Change::RateBitsPerS(rate_bits_per_s) => Shape { rate_bits_per_s, ..shape },
            Change::OneWayDelay(one_way_delay) => Shape { one_way_delay, ..shape },
            Change::Loss(loss) => Shape { loss, ..shape },
            Change::Queue(queue) => Shape { queue, ..shape },
            Change::Silent(silent) => Shape { silent, ..shape },
        }
    }

    /// Reads `rate=18` (Mbit/s), `delay=50` (ms), `loss=0.5` (per cent), `queue=100` (ms),
    /// `silent` or `alive`.
    pub fn parse(text: &str) -> Option<Self> {
        let number = |value: &str| value.parse::<f64>().ok().filter(|n| *n >= 0.0 && *n < 1e9);
        match text.split_once('=') {
            None if text == "silent" => Some(Change::Silent(true)),
            None if text == "alive" => Some(Change::Silent(false)),
            Some(("rate", value)) => {
                let rate = number(value)?;
                (rate > 0.0).then_some(Change::RateBitsPerS((rate * 1e6) as u64))
            }
            Some(("delay", value)) => {
                Some(Change::OneWayDelay(Duration::from_secs_f64(number(value)? / 1e3)))
            }
            Some(("loss", value)) => Some(Change::Loss(number(value)?.min(100.0) / 100.0)),
            Some(("queue", value)) => {
                Some(Change::Queue(Queue::Time(Duration::from_secs_f64(number(value)? / 1e3))))
            }
            _ => None,
        }
    }
}

/// A change, what it concerns, and its time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// After the trigger.
    pub at: Duration,
    /// Where it happens.
    pub target: Target,
    /// What happens.
    pub change: Change,
}

/// A line of a script file that cannot be understood.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("line {line}: '{text}' is not 'AT_MS LINK CHANGE' (for example '2000 6 rate=18')")]
pub struct ScheduleError {
    /// Line number, from 1.
    pub line: usize,
    /// The line.
    pub text: String,
}

/// Steps in order of time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Schedule {
    steps: Vec<Step>,
}

impl Schedule {
    /// Nothing ever changes.
    pub fn none() -> Self {
        Self::default()
    }

    /// Any steps; they are put in order of time.
    pub fn new(mut steps: Vec<Step>) -> Self {
        steps.sort_by_key(|step| step.at);
        Self { steps }
    }

    /// The fastest link falls to a tenth at `at`.
    pub fn cut(rates_bits_per_s: &[u64], at: Duration) -> Self {
        let Some(link) = fastest(rates_bits_per_s) else { return Self::none() };
        let change = Change::RateBitsPerS((rates_bits_per_s[link] / 10).max(1));
        Self::new(vec![Step { at, target: Target::both(link), change }])
    }

    /// The fastest link goes silent at `at`, for good.
    pub fn silent(rates_bits_per_s: &[u64], at: Duration) -> Self {
        let Some(link) = fastest(rates_bits_per_s) else { return Self::none() };
        Self::new(vec![Step { at, target: Target::both(link), change: Change::Silent(true) }])
    }

    /// Every `every`, a random link gets a random rate of [`JUMP_RATES_MBIT_PER_S`].
    pub fn jump(links: usize, every: Duration, length: Duration, seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut steps = Vec::new();
        let mut at = every;
        while at < length && links > 0 && !every.is_zero() {
            let rate_mbit_per_s =
                JUMP_RATES_MBIT_PER_S[random.usize(..JUMP_RATES_MBIT_PER_S.len())];
            let change = Change::RateBitsPerS(rate_mbit_per_s * 1_000_000);
            let target = Target::both(random.usize(..links));
            steps.push(Step { at, target, change });
            at += every;
        }
        Self::new(steps)
    }

    /// Reads lines of `AT_MS LINK CHANGE`, links counted from 1, `#` starting a comment.
    pub fn parse(text: &str) -> Result<Self, ScheduleError> {
        Self::parse_with(text, |word| {
            let link = word.parse::<usize>().ok()?.checked_sub(1)?;
            Some(vec![Target::both(link)])
        })
    }

    /// The same where links have other names: `find` tells what the word in the middle means.
    pub fn parse_with(
        text: &str,
        find: impl Fn(&str) -> Option<Vec<Target>>,
    ) -> Result<Self, ScheduleError> {
        let mut steps = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let content = line.split('#').next().unwrap_or_default().trim();
            if content.is_empty() {
                continue;
            }
            let read = parse_line(content, &find)
                .ok_or_else(|| ScheduleError { line: number + 1, text: content.to_owned() })?;
            steps.extend(read);
        }
        Ok(Self::new(steps))
    }

    /// Returns the steps, in order of time.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Returns how many bits each link can carry toward its near end from the trigger until `until`, at
    /// the given starting rates. A silent link carries nothing.
    pub fn carried_bits(&self, rates_bits_per_s: &[u64], until: Duration) -> Vec<f64> {
        let mut carried = vec![0.0; rates_bits_per_s.len()];
        self.walk(rates_bits_per_s, |from, to, rates| {
            let seconds = to.unwrap_or(until).min(until).saturating_sub(from).as_secs_f64();
            for (sum, rate) in carried.iter_mut().zip(rates) {
                *sum += rate * seconds;
            }
            to.is_none_or(|to| to >= until)
        });
        carried
    }

    /// The physical bound: the time in which all links together carry `bits`. `None` when they
    /// never do.
    pub fn time_to_carry(&self, rates_bits_per_s: &[u64], bits: f64) -> Option<Duration> {
        let mut left = bits;
        let mut end = None;
        self.walk(rates_bits_per_s, |from, to, rates| {
            let rate: f64 = rates.iter().sum();
            let needed_s = if rate > 0.0 { left / rate } else { f64::INFINITY };
            let span_s = to.map_or(f64::INFINITY, |to| (to - from).as_secs_f64());
            if needed_s <= span_s && needed_s.is_finite() {
                end = Some(from + Duration::from_secs_f64(needed_s));
                return true;
            }
            left -= rate * span_s;
            false
        });
        end
    }

    /// Calls `visit(from, to, rates)` for every span of constant rates until it answers true.
    fn walk(
        &self,
        rates_bits_per_s: &[u64],
        mut visit: impl FnMut(Duration, Option<Duration>, &[f64]) -> bool,
    ) {
        let mut rates: Vec<f64> = rates_bits_per_s.iter().map(|rate| *rate as f64).collect();
        let mut effective = rates.clone();
        let mut silent = vec![false; rates.len()];
        let mut from = Duration::ZERO;
        for step in &self.steps {
            if step.at > from {
                if visit(from, Some(step.at), &effective) {
                    return;
                }
                from = step.at;
            }
            let link = step.target.link;
            if link >= rates.len() || !step.target.includes(Direction::Down) {
                continue;
            }
            match step.change {
                Change::RateBitsPerS(rate) => rates[link] = rate as f64,
                Change::Silent(now) => silent[link] = now,
                Change::OneWayDelay(_) | Change::Loss(_) | Change::Queue(_) => {}
            }
            effective[link] = if silent[link] { 0.0 } else { rates[link] };
        }
        visit(from, None, &effective);
    }
}

/// The rates among which [`Schedule::jump`] chooses.
pub const JUMP_RATES_MBIT_PER_S: [u64; 5] = [10, 30, 60, 90, 150];

fn fastest(rates_bits_per_s: &[u64]) -> Option<usize> {
    (0..rates_bits_per_s.len()).max_by_key(|link| rates_bits_per_s[*link])
}

fn parse_line(content: &str, find: impl Fn(&str) -> Option<Vec<Target>>) -> Option<Vec<Step>> {
    let mut words = content.split_whitespace();
    let at = Duration::from_millis(words.next()?.parse().ok()?);
    let targets = find(words.next()?)?;
    let change = Change::parse(words.next()?)?;
    let steps = targets.into_iter().map(|target| Step { at, target, change });
    words.next().is_none().then(|| steps.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATES: [u64; 2] = [20_000_000, 80_000_000];

    #[test]
    fn the_bound_integrates_the_rates() {
        let second = Duration::from_secs(1);
        assert_eq!(Schedule::none().time_to_carry(&RATES, 200e6), Some(2 * second));
        // 1 s at 100 Mbit/s, then 28 Mbit/s.
        let cut = Schedule::cut(&RATES, second);
        assert_eq!(cut.time_to_carry(&RATES, 100e6 + 28e6), Some(2 * second));
        let silent = Schedule::silent(&RATES, second);
        assert_eq!(silent.time_to_carry(&RATES, 100e6 + 20e6), Some(2 * second));
        assert_eq!(silent.carried_bits(&RATES, 2 * second), [40e6, 80e6]);
    }

    #[test]
    fn what_never_arrives_has_no_bound() {
        let steps = vec![
            Step { at: Duration::ZERO, target: Target::both(0), change: Change::Silent(true) },
            Step { at: Duration::ZERO, target: Target::both(1), change: Change::Silent(true) },
        ];
        assert_eq!(Schedule::new(steps).time_to_carry(&RATES, 1.0), None);
    }

    #[test]
    fn a_script_is_read_and_put_in_order() {
        let schedule = Schedule::parse("# a comment\n2000 2 rate=8\n\n500 1 silent # soon\n");
        let schedule = schedule.unwrap();
        assert_eq!(schedule.steps()[0].change, Change::Silent(true));
        assert_eq!(schedule.steps()[1].change, Change::RateBitsPerS(8_000_000));
        assert_eq!(schedule.steps()[1].target, Target::both(1));
    }

    #[test]
    fn what_a_link_does_away_from_us_does_not_bound_us() {
        let step = |only| Step {
            at: Duration::ZERO,
            target: Target { link: 1, only: Some(only) },
            change: Change::RateBitsPerS(20_000_000),
        };
        let second = Duration::from_secs(1);
        let up = Schedule::new(vec![step(Direction::Up)]);
        assert_eq!(up.time_to_carry(&RATES, 100e6), Some(second));
        let down = Schedule::new(vec![step(Direction::Down)]);
        assert_eq!(down.time_to_carry(&RATES, 40e6), Some(second));
    }

    #[test]
    fn a_word_may_mean_several_links() {
        let find = |word: &str| (word == "all").then(|| vec![Target::both(0), Target::both(1)]);
        let schedule = Schedule::parse_with("7 all silent", find).unwrap();
        assert_eq!(schedule.steps().len(), 2);
        assert!(Schedule::parse_with("7 1 silent", find).is_err());
    }

    #[test]
    fn a_bad_line_is_named() {
        for bad in ["x 1 rate=1", "1 0 rate=1", "1 1 rate=-4", "1 1 fast", "1 1 silent now"] {
            let error = Schedule::parse(&format!("0 1 alive\n{bad}")).unwrap_err();
            assert_eq!(error, ScheduleError { line: 2, text: bad.to_owned() });
        }
    }

    #[test]
    fn jumps_repeat_with_their_seed() {
        let jump =
            |seed| Schedule::jump(6, Duration::from_millis(500), Duration::from_secs(60), seed);
        assert_eq!(jump(1), jump(1));
        assert_ne!(jump(1), jump(2));
        assert_eq!(jump(1).steps().len(), 119);
    }
}
