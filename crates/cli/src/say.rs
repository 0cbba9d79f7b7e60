//! Words to standard output and standard error. Nothing here panics: where a reader has gone away
//! or a device is full, the words are lost, and the program ends with the code that it has earned.

use std::io::{self, IsTerminal as _, Write as _};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::exit::{Exit, fail};
use crate::progress::json::are_events_lost;
use crate::progress::look::Look;

/// A line on standard error, without what a server may have put into it to move a cursor.
pub fn err(line: &str) {
    let line = Look::of_lines().safe_words(line);
    let line = match io::stderr().is_terminal() {
        true => Look::of_stderr().wrapped(&line),
        false => line + "\n",
    };
    // There is nowhere left to complain to.
    let _ = write!(io::stderr(), "{line}");
}

/// A line on standard error that belongs to the one before: what to do about it, or how it came to it.
pub fn hint(line: &str) {
    err(&format!("  {line}"));
}

/// Several lines of ours on standard error.
pub fn err_lines(lines: &str) {
    lines.lines().for_each(err);
}

/// All that a command prints, on standard output; `exit` is its end if that works. A reader that
/// had enough is no mistake, a full device is one.
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

/// How the program ends that ended with `exit`: not well, if what it was to tell is lost.
pub fn settled(exit: Exit) -> Exit {
    match exit == Exit::Done && are_events_lost() {
        true => Exit::Target,
        false => exit,
    }
}

/// What is said where something belongs on a standard output that is not there.
pub const CLOSED: &str = "cannot write to standard output: it is closed";

/// Whether the program was started with standard output closed (`>&-`). The runtime of Rust opens
/// `/dev/null` in its place before `main`, so every write would succeed and all bytes be lost: the
/// descriptor is looked at before that.
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

/// A path as a shell takes it for one word, within the single quotes of a sentence.
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
