//! Texts of others in CSV: spreadsheets take a cell that begins with certain characters for a formula, and
//! run it.

use std::borrow::Cow;

/// Returns a text as a cell that no spreadsheet runs: with an apostrophe in front of what could be a
/// formula. Reading a log takes it away.
pub fn csv_cell(text: &str) -> Cow<'_, str> {
    match text.trim_start().starts_with(RUNS) || text.starts_with(['\t', '\r', '\n']) {
        true => Cow::Owned(format!("'{text}")),
        false => Cow::Borrowed(text),
    }
}

/// The text of a cell that [`csv_cell`] may have written.
pub(super) fn text_of(cell: &str) -> &str {
    let text = cell.strip_prefix('\'').filter(|text| text.trim_start().starts_with(RUNS));
    text.unwrap_or(cell)
}

/// What formulas begin with, in any width.
const RUNS: [char; 8] = ['=', '+', '-', '@', '＝', '＋', '－', '＠'];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_cell_is_run_and_all_are_read_again() {
        for text in ["=1+2", "+1", "-1", "@SUM(A1)", " =1", "＝1", "\t=1"] {
            let cell = csv_cell(text);
            assert_eq!(*cell, format!("'{text}"));
            assert_eq!(text_of(&cell), text);
        }
        for text in ["", "data.example", "a=b", "'quoted'", "10.0.0.1:80"] {
            assert_eq!(csv_cell(text), text);
            assert_eq!(text_of(text), text);
        }
    }
}
