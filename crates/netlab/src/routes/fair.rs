//! Max-min fair shares: no flow can get more without one that has no more than it getting less.

/// A flow over some resources, and the most that it can take.
pub(super) struct Flow {
    pub resources: Vec<usize>,
    pub most: f64,
}

/// What each flow gets, by progressive filling: all grow alike; whoever reaches its own limit, or
/// a resource that is full, stays there.
pub(super) fn shares(flows: &[Flow], capacities: &[f64]) -> Vec<f64> {
    let mut left = capacities.to_vec();
    let mut users = vec![0usize; capacities.len()];
    for flow in flows {
        flow.resources.iter().for_each(|&resource| users[resource] += 1);
    }
    let mut shares = vec![0.0; flows.len()];
    let mut growing: Vec<usize> = (0..flows.len()).collect();
    let mut level = 0.0;
    while !growing.is_empty() {
        let full = (0..left.len())
            .filter(|&at| users[at] > 0)
            .map(|at| left[at] / users[at] as f64)
            .fold(f64::INFINITY, f64::min);
        let own = growing.iter().map(|&at| flows[at].most - level).fold(f64::INFINITY, f64::min);
        let more = full.min(own).max(0.0);
        level += more;
        for at in 0..left.len() {
            left[at] -= more * users[at] as f64;
        }
        let before = growing.len();
        growing.retain(|&at| {
            let flow = &flows[at];
            let stays = flow.most - level > ROUNDING
                && flow.resources.iter().all(|&it| left[it] > ROUNDING * users[it].max(1) as f64);
            if !stays {
                shares[at] = level;
                flow.resources.iter().for_each(|&it| users[it] -= 1);
            }
            stays
        });
        if growing.len() == before {
            break;
        }
    }
    for at in growing {
        shares[at] = level;
    }
    shares
}

/// A byte per second is no rest.
const ROUNDING: f64 = 1.0;

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(resources: &[usize], most: f64) -> Flow {
        Flow { resources: resources.to_vec(), most }
    }

    #[test]
    fn nobody_gets_more_without_another_getting_less() {
        // The textbook's line of two links: the long flow shares both.
        let flows = [flow(&[0, 1], 1e9), flow(&[0], 1e9), flow(&[1], 1e9)];
        let found = shares(&flows, &[1000.0, 4000.0]);
        for (found, wanted) in found.iter().zip([500.0, 500.0, 3500.0]) {
            assert!((found - wanted).abs() < 3.0, "{found} {wanted}");
        }
        let found = shares(&[flow(&[0], 100.0), flow(&[0], 1e9)], &[1000.0]);
        assert!((found[0] - 100.0).abs() < 3.0 && (found[1] - 900.0).abs() < 3.0, "{found:?}");
        assert_eq!(shares(&[flow(&[0], 100.0)], &[0.0]), [0.0]);
    }
}
