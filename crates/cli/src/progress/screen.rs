//! A block of lines at the bottom of a terminal that is redrawn.
//!
//! Between calls the cursor is always at the start of the line below the block, so that other output (a
//! panic, a shell) gets its own line. Lines never reach the last column. A block is erased by moving up
//! by its current number of rows: if the window became narrower, terminals have wrapped the lines.

use std::io::Write;

use super::text;

/// Begin and end of a synchronized update.
const HOLD: &str = "\x1b[?2026h";
const SHOW: &str = "\x1b[?2026l";

/// A redrawn block.
pub(super) struct Screen<W: Write> {
    out: W,
    /// Widths of the lines on the screen.
    drawn: Vec<usize>,
    /// Columns of the terminal when they were drawn.
    columns: usize,
}

impl<W: Write> Screen<W> {
    pub(super) fn new(out: W) -> Self {
        Self { out, drawn: Vec::new(), columns: 0 }
    }

    /// Replaces the block by these lines; `columns` is the current width of the terminal.
    pub(super) fn draw(&mut self, lines: &[String], columns: usize) {
        let lines: Vec<String> =
            lines.iter().map(|line| text::cut_painted(line, columns.saturating_sub(1))).collect();
        let mut bytes = String::from(HOLD);
        self.move_up(&mut bytes, columns);
        if columns != self.columns {
            bytes.push_str("\x1b[J");
        }
        for line in &lines {
            bytes.push_str(line);
            bytes.push_str("\x1b[K\n");
        }
        bytes.push_str("\x1b[J");
        bytes.push_str(SHOW);
        self.drawn = lines.iter().map(|line| text::width_painted(line)).collect();
        self.columns = columns;
        self.write(&bytes);
    }

    /// Prints text above the block.
    pub(super) fn print_above(&mut self, text: &str, block: &[String], columns: usize) {
        let mut bytes = String::new();
        self.move_up(&mut bytes, columns);
        bytes.push_str("\x1b[J");
        bytes.push_str(text.trim_end_matches('\n'));
        bytes.push('\n');
        self.drawn.clear();
        self.write(&bytes);
        if !block.is_empty() {
            self.draw(block, columns);
        }
    }

    /// Removes the block.
    pub(super) fn clear(&mut self, columns: usize) {
        if self.drawn.is_empty() {
            return;
        }
        let mut bytes = String::new();
        self.move_up(&mut bytes, columns);
        bytes.push_str("\x1b[J");
        self.drawn.clear();
        self.write(&bytes);
    }

    /// Moves to the first row of the block.
    fn move_up(&self, bytes: &mut String, columns: usize) {
        let rows: usize =
            self.drawn.iter().map(|width| width.div_ceil(columns.max(1)).max(1)).sum();
        bytes.push('\r');
        if rows > 0 {
            bytes.push_str(&format!("\x1b[{rows}A"));
        }
    }

    fn write(&mut self, bytes: &str) {
        // A closed terminal must not stop the transfer.
        let _ = self.out.write_all(bytes.as_bytes());
        let _ = self.out.flush();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|t| (*t).to_owned()).collect()
    }

    #[test]
    fn a_block_is_drawn_over_itself_and_goes_away() {
        let mut screen = Screen::new(Vec::new());
        screen.draw(&lines(&["one", "two"]), 40);
        screen.draw(&lines(&["three"]), 40);
        screen.clear(40);
        screen.clear(40);
        let text = String::from_utf8(screen.out).expect("text");
        assert_eq!(
            text,
            "\x1b[?2026h\r\x1b[Jone\x1b[K\ntwo\x1b[K\n\x1b[J\x1b[?2026l\
             \x1b[?2026h\r\x1b[2Athree\x1b[K\n\x1b[J\x1b[?2026l\
             \r\x1b[1A\x1b[J"
        );
    }

    #[test]
    fn a_narrower_window_has_wrapped_the_lines() {
        let mut screen = Screen::new(Vec::new());
        screen.draw(&lines(&[&"x".repeat(70), "short"]), 80);
        screen.out.clear();
        screen.clear(40);
        assert_eq!(screen.out, b"\r\x1b[3A\x1b[J");
    }

    #[test]
    fn notes_go_above() {
        let mut screen = Screen::new(Vec::new());
        screen.draw(&lines(&["bar"]), 80);
        screen.out.clear();
        screen.print_above("note\n", &lines(&["bar"]), 80);
        let text = String::from_utf8(screen.out).expect("text");
        assert_eq!(text, "\r\x1b[1A\x1b[Jnote\n\x1b[?2026h\rbar\x1b[K\n\x1b[J\x1b[?2026l");
    }
}
