//! Rates over time, in few enough samples for a page.

use swath_model::observe::Summary;

use crate::recording::drawable;

/// Most rates kept, over all samples and sources.
pub(crate) const RATES_MAX: usize = 400_000;
/// Most samples; a screen cannot show more.
const SAMPLES_MAX: usize = 1_200;
/// Fewest samples kept, however many sources there are.
const SAMPLES_MIN: usize = 64;

/// The rate of every source around one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Sample {
    /// Seconds since the transfer began.
    pub at_s: f64,
    /// Bytes per second by source number; sources found later have no entry yet.
    pub rates_bytes_per_s: Vec<f32>,
}

/// Samples of the rates; when there are too many, pairs of them are averaged.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rates {
    /// The samples.
    pub samples: Vec<Sample>,
    /// The number of samples that are averaged into one, minus one.
    merged: usize,
    /// The samples of the next one so far.
    pending: Vec<Sample>,
}

impl Rates {
    pub(crate) fn add(&mut self, sample: Sample, sources: usize) {
        self.pending.push(sample);
        if self.pending.len() > self.merged {
            self.flush();
        }
        let samples_max = (RATES_MAX / sources.max(1)).clamp(SAMPLES_MIN, SAMPLES_MAX);
        if self.samples.len() > samples_max {
            self.samples = self.samples.chunks(2).map(Sample::mean).collect();
            self.merged = self.merged * 2 + 1;
        }
    }

    /// Ends the sample that is being collected.
    pub(crate) fn flush(&mut self) {
        if !self.pending.is_empty() {
            self.samples.push(Sample::mean(&self.pending));
            self.pending.clear();
        }
    }

    /// Uses the mean rates of a transfer that ended before its first sample.
    pub(crate) fn end(&mut self, summary: &Summary, sources: usize) {
        if !self.samples.is_empty() || !self.pending.is_empty() || summary.fetched_bytes == 0 {
            return;
        }
        let seconds = summary.elapsed_s.max(1e-6);
        let mut rates_bytes_per_s = vec![0.0; sources];
        for source in &summary.sources {
            if let Some(rate) = rates_bytes_per_s.get_mut(source.source as usize) {
                *rate = drawable(source.bytes as f64 / seconds) as f32;
            }
        }
        self.samples = [0.0, drawable(summary.elapsed_s)]
            .map(|at_s| Sample { at_s, rates_bytes_per_s: rates_bytes_per_s.clone() })
            .to_vec();
    }
}

impl Sample {
    /// The mean of samples that follow each other, at their middle.
    pub(crate) fn mean(samples: &[Sample]) -> Sample {
        let n = samples.len().max(1) as f64;
        let width = samples.iter().map(|s| s.rates_bytes_per_s.len()).max().unwrap_or(0);
        let mut rates = vec![0.0_f64; width];
        for sample in samples {
            for (sum, rate) in rates.iter_mut().zip(&sample.rates_bytes_per_s) {
                *sum += f64::from(*rate);
            }
        }
        Sample {
            at_s: samples.iter().map(|s| s.at_s).sum::<f64>() / n,
            rates_bytes_per_s: rates.into_iter().map(|sum| (sum / n) as f32).collect(),
        }
    }

    /// The rate of a source.
    pub(crate) fn of(&self, source: usize) -> f64 {
        f64::from(self.rates_bytes_per_s.get(source).copied().unwrap_or(0.0))
    }

    /// The rate of all sources together.
    pub(crate) fn total(&self) -> f64 {
        self.rates_bytes_per_s.iter().map(|rate| f64::from(*rate)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_average() {
        let sample = |at_s, rates: &[f32]| Sample { at_s, rates_bytes_per_s: rates.to_vec() };
        assert_eq!(
            Sample::mean(&[sample(1.0, &[10.0]), sample(2.0, &[20.0, 4.0])]),
            sample(1.5, &[15.0, 2.0])
        );
    }
}
