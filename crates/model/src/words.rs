//! Numbers in sentences.

/// So many of something: `1 byte`, `2 bytes`, `0 files`.
pub fn counted(count: u64, one: &str) -> String {
    format!("{count} {one}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_one() {
        assert_eq!([0, 1, 2].map(|n| counted(n, "byte")), ["0 bytes", "1 byte", "2 bytes"]);
    }
}
