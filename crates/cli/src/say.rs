//! Words to standard output and standard error. Nothing here panics: where a reader has gone away
//! or a device is full, the words are lost, and the program ends with the code that it has earned.

use std::io::{self, Write as _};
use std::path::Path;

use crate::exit::{Exit, fail};
use crate::progress::look::Look;

/// A line on standard error, without what a server may have put into it to move a cursor.
pub fn err(line: &str) {
    // There is nowhere left to complain to.
    let _ = writeln!(io::stderr(), "{}", Look::of_lines().safe_words(line));
}

/// All that a command prints, on standard output; `exit` is its end if that works. A reader that
/// had enough is no mistake, a full device is one.
pub fn out(bytes: &[u8], exit: Exit) -> Exit {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => exit,
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => exit,
        Err(error) => {
            fail(exit.max(Exit::Target), &format!("cannot write to standard output: {error}"))
        }
    }
}

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
