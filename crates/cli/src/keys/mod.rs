//! `swath keys`: makes and shows the keys that sign publications.

mod file;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueHint};
use swath_formats::minisign::{PublicKey, SECRET_RANDOM_BYTES, SecretKey};

use crate::exit::Exit;
use crate::failure::Failure;
use crate::say;

pub use file::{public_key, secret_key};

/// `swath keys`
#[derive(Args, Debug)]
#[command(disable_help_subcommand = true, subcommand_value_name = "COMMAND", after_long_help = EXAMPLES)]
pub struct Keys {
    /// Subcommand
    #[command(subcommand)]
    pub command: KeysCommand,
}

/// Subcommands of `swath keys`.
#[derive(Debug, Subcommand)]
pub enum KeysCommand {
    /// Make a key pair: a secret key that signs, and a public key for everybody
    New {
        /// File for the secret key; the public key gets the extension .pub
        #[arg(short, long, value_name = "FILE", default_value = "swath.key", value_hint = ValueHint::FilePath)]
        output: PathBuf,
    },
    /// Show the public key of a key file
    Show {
        /// File with a secret or a public key
        #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
        file: PathBuf,
    },
}

/// Runs the command.
pub fn run(keys: &Keys) -> Result<Exit, Failure> {
    match &keys.command {
        KeysCommand::New { output } => new(output),
        KeysCommand::Show { file } => {
            let key = file::shown_key(file)?;
            Ok(say::out(words(&key).as_bytes(), Exit::Done))
        }
    }
}

fn new(path: &Path) -> Result<Exit, Failure> {
    let public_path = path.with_extension("pub");
    if public_path == path {
        let text = format!("{}: the extension .pub is that of the public key", path.display());
        return Err(Failure::usage(text));
    }
    let mut random = [0; SECRET_RANDOM_BYTES];
    swath_serve::random(&mut random);
    let key = SecretKey::from_random(&random)
        .map_err(|error| Failure::new(Exit::Internal, error.to_string()))?;
    file::create(path, &key.write(), true)?;
    if let Err(failure) = file::create(&public_path, &key.public().write(), false) {
        // Without its public key nobody can verify what it signs, and `keys show` tells it.
        return Err(failure.hint(format!(
            "the secret key is in {path}; 'swath keys show {path}' shows its public key",
            path = path.display()
        )));
    }
    let text = format!(
        "secret key: {} (keep it safe: whoever has it can sign as you)\npublic key: {}\n{}",
        path.display(),
        public_path.display(),
        words(key.public())
    );
    Ok(say::out(text.as_bytes(), Exit::Done))
}

fn words(key: &PublicKey) -> String {
    format!("key {}\n  swath verify DIR --trust {key}\n  minisign -V -m FILE -P {key}\n", key.id)
}

const EXAMPLES: &str = "\
Examples:
  swath keys new -o institute.key                    writes institute.key and institute.pub
  swath publish run7/ --version 2 --sign institute.key -o pub
  swath verify data/run7 --trust institute.pub --index pub/run7-2.index

The files are those of minisign. Keys have no password: file permissions protect them.";
