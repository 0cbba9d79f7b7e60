//! What `--share` of `swath get` and of `swath cp` have in common: the token, and how machines find each other.

use swath_jobs::{Environment, SecretRef};

use crate::args::TokenFrom;
use crate::failure::Failure;

/// Returns where a job finds the token.
pub fn token(token: &TokenFrom) -> SecretRef {
    match token {
        TokenFrom::File(path) => SecretRef::File(path.clone()),
        TokenFrom::Word(_) => SecretRef::Name(TOKEN_NAME.to_owned()),
    }
}

/// Puts a token of the command line into the environment of a job.
pub fn provide(token: &TokenFrom, environment: &mut Environment) {
    if let TokenFrom::Word(word) = token {
        environment.secrets.insert(TOKEN_NAME.to_owned(), word.clone());
    }
}

/// Reads the name of a machine, `HOST` or `HOST:PORT`. The host is looked up later.
pub fn machine(text: &str) -> Result<String, String> {
    let is_port = |port: &&str| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    let port = match text.rsplit_once(':') {
        // Not a part of an IPv6 address.
        Some((host, port)) if !host.contains(':') || host.ends_with(']') => Some(port),
        _ => None,
    };
    match port.filter(is_port) {
        Some(port) if !matches!(port.parse::<u16>(), Ok(1..)) => {
            Err(format!("the port {port} is not between 1 and 65535"))
        }
        _ => Ok(text.to_owned()),
    }
}

/// Refuses a cluster whose machines cannot find each other. `finds` is true if the user named other
/// machines or a tracker.
pub fn check(finds: bool) -> Result<(), Failure> {
    if finds {
        return Ok(());
    }
    let hint = "--peers HOST,HOST,… names them, --tracker URL ('swath track' is one) knows them";
    Err(Failure::usage("--share needs a way to find the other machines").hint(hint))
}

/// The name of the token among the secrets of a job.
const TOKEN_NAME: &str = "cluster token";

#[cfg(test)]
mod tests {
    use super::machine;

    #[test]
    fn ports_are_checked_before_names_are_looked_up() {
        for text in ["host", "host:1", "a.b:65535", "::1", "fe80::99999", "[::1]:8475", "", "host:"]
        {
            assert_eq!(machine(text).as_deref(), Ok(text));
        }
        for text in ["host:0", "host:65536", "10.0.0.1:99999", "[::1]:70000"] {
            assert!(
                machine(text).is_err_and(|error| error.contains("between 1 and 65535")),
                "{text}"
            );
        }
    }
}
