//! Prints to standard output and standard error. Nothing here panics: if the reader is gone or a device
//! is full, the text is lost, and the exit code stays.

use std::io::{self, IsTerminal as _, Write as _};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use unicode_width::UnicodeWidthStr as _;

use crate::exit::{Exit, fail};
use crate::progress::json::are_events_lost;
use crate::progress::look::Look;

/// Prints a line on standard error, with the control characters of servers escaped.
pub fn err(line: &str) {
    let line = Look::of_lines().safe_words(line);
    let line = match io::stderr().is_terminal() {
        true => Look::of_stderr().wrapped(&line),
        false => line + "\n",
    };
    // There is nowhere left to report an error.
    let _ = write!(io::stderr(), "{line}");
}

/// Prints an error.
pub fn error(text: &str) {
    err(&format!("error: {text}"));
}

/// Prints an indented line on standard error: a reason or a hint.
pub fn hint(line: &str) {
    err(&format!("  {line}"));
}

/// Prints several lines on standard error.
pub fn err_lines(lines: &str) {
    lines.lines().for_each(err);
}

/// Prints to standard output and returns `exit`, or an error if that fails. A closed pipe is no error; a
/// full device is one.
pub fn out(bytes: &[u8], exit: Exit) -> Exit {
    if is_closed() {
        return fail(exit.max(Exit::Target), CLOSED);
    }
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => exit,
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => exit,
        Err(error) => {
            fail(exit.max(Exit::Target), &format!("cannot write to standard output: {error}"))
        }
    }
}

/// Returns the exit code of the program: an error if events were lost.
pub fn settled(exit: Exit) -> Exit {
    match exit == Exit::Done && are_events_lost() {
        true => Exit::Target,
        false => exit,
    }
}

/// The error for a closed standard output.
pub const CLOSED: &str = "cannot write to standard output: it is closed";

/// Whether the program was started with standard output closed (`>&-`). Rust's runtime opens `/dev/null`
/// instead before `main`, so that writes would succeed and all bytes be lost: the descriptor is checked
/// before that.
pub fn is_closed() -> bool {
    OUT_IS_CLOSED.load(Ordering::Relaxed)
}

static OUT_IS_CLOSED: AtomicBool = AtomicBool::new(false);

extern "C" fn look_at_descriptors() {
    // SAFETY: a plain system call on a number; nothing of the runtime is used, which is not set up.
    let is_closed = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) } == -1;
    OUT_IS_CLOSED.store(is_closed, Ordering::Relaxed);
}

// SAFETY: the loader calls what this section lists, functions of the C calling convention, before
// `main`; this one reads none of their arguments.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = look_at_descriptors;

/// Aligns the cells of rows in columns; those in `right` are right-aligned.
pub fn columns(rows: &[Vec<String>], right: &[usize]) -> Vec<String> {
    let width = |column: usize| rows.iter().map(|row| row[column].width()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..rows.first().map_or(0, Vec::len)).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().enumerate().map(|(column, cell)| {
            let pad = " ".repeat(widths[column] - cell.width());
            if right.contains(&column) { format!("{pad}{cell}") } else { format!("{cell}{pad}") }
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

/// Quotes a path for a shell, within the single quotes of a sentence.
pub fn word(path: &Path) -> String {
    let path = path.display().to_string();
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+=:,@%".contains(c);
    if path.chars().all(is_plain) {
        return path;
    }
    let mut word = String::from("\"");
    for c in path.chars() {
        if "\"\\$`".contains(c) {
            word.push('\\');
        }
        word.push(c);
    }
    word + "\""
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_to_be_typed_is_one_word() {
        assert_eq!(word(Path::new("/data/run-7.meta4")), "/data/run-7.meta4");
        assert_eq!(word(Path::new("run 7.meta4")), "\"run 7.meta4\"");
        assert_eq!(word(Path::new("a\"$b`\\")), "\"a\\\"\\$b\\`\\\\\"");
    }
}
