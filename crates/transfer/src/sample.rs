//! Short transfers whose bytes go nowhere: they show how large a file is, and how fast it comes.

use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use tokio::sync::Notify;

use crate::engine::{Engine, Stop};
use crate::error::GetError;
use crate::observe::{Event, Observer, Phase, Summary};
use crate::request::Request;

/// Results of a short transfer.
#[derive(Debug)]
pub struct Sample {
    /// [`GetError::Stopped`] if the time was over before the bytes had come.
    pub result: Result<Summary, GetError>,
    /// The addresses of its sources, as users see them.
    pub sources: Vec<String>,
    /// What came; `None` if nothing was even begun.
    pub summary: Option<Summary>,
    /// How long it lasted.
    pub elapsed: Duration,
    /// Seconds until the first byte.
    pub first_byte_s: Option<f64>,
    /// The rate in its second half, in bytes per second: connections take a while to come up to speed.
    pub rate_bytes_per_s: Option<f64>,
}

impl Engine {
    /// Runs a transfer to [`Destination::Nowhere`](crate::Destination::Nowhere) until all its bytes have
    /// come, or the time `lasts` is over after the first of them, or none came for three times as
    /// long. Only [`Event::Note`] reaches `reader`.
    pub fn sample<'a>(
        &'a self,
        request: Request,
        lasts: Duration,
        reader: &'a mut dyn Observer,
        stop: &'a Stop,
    ) -> BoxFuture<'a, Sample> {
        Box::pin(async move {
            let (mut summary, mut sources) = (None, Vec::new());
            let mut came = vec![(0.0, 0)];
            let answered = Notify::new();
            let mut observer = |event: &Event| match event {
                Event::Started { sources: names, .. } => sources.clone_from(names),
                Event::Progress(now) if now.phase == Phase::Fetching => {
                    if now.done_bytes > 0 {
                        answered.notify_one();
                    }
                    came.push((now.at_s, now.done_bytes));
                }
                Event::Finished(end) | Event::Failed { summary: end, .. } => {
                    came.push((end.elapsed_s, end.fetched_bytes));
                    summary = Some(end.clone());
                }
                Event::Note { .. } => reader.observe(event),
                _ => {}
            };
            let (over, began) = (Stop::default(), Instant::now());
            let time_is_over = async {
                let first =
                    tokio::time::timeout(lasts.saturating_mul(ANSWER_TIMES), answered.notified());
                let time = async {
                    if first.await.is_ok() {
                        tokio::time::sleep(lasts).await;
                    }
                };
                tokio::select! {
                    () = time => {}
                    () = stop.wait() => {}
                }
                over.set();
                std::future::pending::<GetError>().await
            };
            let result = tokio::select! {
                result = self.get_observed(request, &mut observer, &over) => result,
                error = time_is_over => Err(error),
            };
            let elapsed = began.elapsed();
            let first_byte_s = came.iter().find(|(_, bytes)| *bytes > 0).map(|(at_s, _)| *at_s);
            let rate_bytes_per_s = rate_of_second_half(&came);
            Sample { result, sources, summary, elapsed, first_byte_s, rate_bytes_per_s }
        })
    }
}

/// How many times as long as the sample the first byte is waited for.
const ANSWER_TIMES: u32 = 3;

/// Returns the rate after the middle of the time in which bytes came.
fn rate_of_second_half(came: &[(f64, u64)]) -> Option<f64> {
    let &(end_s, end_bytes) = came.last()?;
    let begin_s = came.iter().rfind(|(_, bytes)| *bytes == 0).map_or(0.0, |(at_s, _)| *at_s);
    let middle_s = begin_s.midpoint(end_s);
    let &(from_s, from_bytes) = came.iter().rfind(|(at_s, _)| *at_s <= middle_s)?;
    let bytes = end_bytes.checked_sub(from_bytes).filter(|bytes| *bytes > 0)?;
    (end_s > from_s).then(|| bytes as f64 / (end_s - from_s))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_that_of_the_second_half() {
        let came = [(0.0, 0), (1.0, 0), (1.5, 10), (2.0, 100), (3.0, 1100)];
        assert_eq!(rate_of_second_half(&came), Some(1000.0));
        assert_eq!(rate_of_second_half(&[(0.0, 0), (0.5, 500)]), Some(1000.0));
        assert_eq!(rate_of_second_half(&[(0.0, 0), (0.5, 0)]), None);
        assert_eq!(rate_of_second_half(&[]), None);
    }
}
