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

/// Refuses machines that cannot find each other: `finds` is whether any are named, or a tracker.
pub fn check(finds: bool) -> Result<(), Failure> {
    if finds {
        return Ok(());
    }
    let hint = "--peers HOST,HOST,… names them, --tracker URL ('swath track' is one) knows them";
    Err(Failure::usage("--share needs a way to find the other machines").hint(hint))
}

/// The name of the token among the secrets of a job.
const TOKEN_NAME: &str = "cluster token";
