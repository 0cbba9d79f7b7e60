//! How links of a mesh are named: by the sites that they join.

use super::spec::{ALL, MeshSpec, folded};
use crate::wan::{Direction, Target};

impl MeshSpec {
    /// Returns the position of a site. Upper and lower case are the same, and so are `-` and `_`.
    pub fn site(&self, name: &str) -> Option<usize> {
        let name = folded(name);
        self.sites.iter().position(|site| folded(&site.name) == name)
    }

    /// What a word means: `A-B` the link between two sites, `A:B` what it carries from A to B,
    /// `A` every link of a site, `all` every link. `None` when there is no such link or site.
    pub fn targets(&self, word: &str) -> Option<Vec<Target>> {
        if folded(word) == ALL {
            return Some((0..self.links.len()).map(Target::both).collect());
        }
        if let Some((from, to)) = word.split_once(':') {
            return self.between(self.site(from)?, self.site(to)?, true).map(|found| vec![found]);
        }
        if let Some(site) = self.site(word) {
            let is_there = |&link: &usize| {
                let link = &self.links[link];
                link.near == site || link.far == site
            };
            return Some((0..self.links.len()).filter(is_there).map(Target::both).collect());
        }
        // Names may have dashes of their own.
        word.match_indices('-').find_map(|(at, _)| {
            let (one, other) = (self.site(&word[..at])?, self.site(&word[at + 1..])?);
            self.between(one, other, false).map(|found| vec![found])
        })
    }

    /// Returns the link of two sites, or its direction from the first to the second.
    fn between(&self, from: usize, to: usize, directed: bool) -> Option<Target> {
        self.links.iter().enumerate().find_map(|(position, link)| {
            let direction = match (link.near, link.far) {
                ends if ends == (from, to) => Direction::Up,
                ends if ends == (to, from) => Direction::Down,
                _ => return None,
            };
            Some(Target { link: position, only: directed.then_some(direction) })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mesh::{MeshLink, SiteSpec};
    use crate::wan::Shape;
    use std::time::Duration;

    #[test]
    fn links_have_the_names_of_their_sites() {
        let shape = Shape::new(1_000_000, Duration::from_millis(1));
        let link = |near, far| MeshLink { near, far, down: shape, up: shape };
        let spec = MeshSpec {
            sites: ["sunnyvale", "Kansas-City", "ORNL"].map(SiteSpec::new).to_vec(),
            links: vec![link(0, 1), link(1, 2)],
            seed: 1,
            has_offload: false,
        };
        let one = |link, only| Some(vec![Target { link, only }]);
        assert_eq!(spec.targets("sunnyvale-kansas-city"), one(0, None));
        assert_eq!(spec.targets("KANSAS_CITY-SUNNYVALE"), one(0, None));
        assert_eq!(spec.targets("ornl:kansas-city"), one(1, Some(Direction::Down)));
        assert_eq!(spec.targets("kansas-city:ornl"), one(1, Some(Direction::Up)));
        let both = vec![Target::both(0), Target::both(1)];
        assert_eq!(spec.targets("kansas-city"), Some(both.clone()));
        assert_eq!(spec.targets("all"), Some(both));
        assert_eq!(spec.targets("ornl"), one(1, None));
        for unknown in ["", "-", "1", "ornl-sunnyvale", "ornl:sunnyvale", "denver", "ornl-"] {
            assert_eq!(spec.targets(unknown), None, "{unknown}");
        }
    }
}
