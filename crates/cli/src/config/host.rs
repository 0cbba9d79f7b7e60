//! Sections for single servers: `[hosts."data.example"]`.

use std::path::{Path, PathBuf};

use crate::failure::Failure;
use swath_jobs::CertificateFiles;
use swath_model::digest::Digest;
use swath_source::{HostPattern, ProxyChoice, ServerAccess, Token};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::ConfigProblem;
use super::read::{Line, Reader};
use super::settings::at_home;
use crate::args::fingerprint;
use crate::exposed;

/// Settings of a server, or of all servers of a domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostSection {
    /// The name as written.
    pub name: String,
    /// The servers that it matches.
    pub servers: HostPattern,
    /// The file with their token.
    pub token_file: Option<PathBuf>,
    /// SHA-256 of their certificate.
    pub fingerprint: Option<Digest>,
    /// Additional certificate authorities.
    pub ca: Vec<PathBuf>,
    /// The client certificate for them.
    pub cert: Option<PathBuf>,
    /// The file with its key.
    pub key: Option<PathBuf>,
    /// Their proxy.
    pub proxy: Option<ProxyChoice>,
    /// Maximum connections to each.
    pub connections: Option<u32>,
    /// The line of the section.
    pub line: usize,
}

impl HostSection {
    /// Returns the access for connections.
    pub fn access(&self) -> Result<ServerAccess, Failure> {
        self.token_file.as_deref().into_iter().for_each(exposed::warn_of_secret);
        let files = self
            .cert
            .clone()
            .map(|certificate| CertificateFiles { certificate, key: self.key.clone() });
        Ok(ServerAccess {
            servers: self.servers.clone(),
            token: self.token_file.as_deref().map(Token::in_file).transpose()?,
            is_for_this_run: false,
            fingerprint: self.fingerprint,
            ca_files: self.ca.clone(),
            certificate: files.map(|files| files.read()).transpose()?,
            proxy: self.proxy.clone(),
            connections: self.connections,
        })
    }
}

/// Reads all sections; those of single hosts come first, because they override those of domains.
pub(super) fn read(
    reader: &Reader<'_>,
    value: &Spanned<DeValue<'_>>,
) -> Result<Vec<HostSection>, (Line, ConfigProblem)> {
    let Some(table) = value.get_ref().as_table() else {
        return Err(reader.wrong_type(value, "hosts", "a table"));
    };
    let mut sections: Vec<HostSection> = Vec::new();
    let mut written: Vec<_> = table.iter().collect();
    written.sort_by_key(|(name, _)| name.span().start);
    for (name, value) in written {
        let written = name.get_ref().to_string();
        let section = section(reader, &written, reader.line(name.span().start), value)?;
        if sections.iter().any(|other| other.servers == section.servers) {
            return Err(reader.at(name, ConfigProblem::HostTwice(written)));
        }
        sections.push(section);
    }
    // A longer domain is more specific.
    sections.sort_by_key(|section| match section.name.contains("*.") {
        true => usize::MAX - section.name.len(),
        false => 0,
    });
    Ok(sections)
}

fn section(
    reader: &Reader<'_>,
    name: &str,
    line: Line,
    value: &Spanned<DeValue<'_>>,
) -> Result<HostSection, (Line, ConfigProblem)> {
    let servers = name.parse().map_err(|_| (line, ConfigProblem::Host(name.to_owned())))?;
    let Some(table) = value.get_ref().as_table() else {
        return Err(reader.wrong_type(value, "hosts", "a table for each host"));
    };
    let mut section = HostSection {
        name: name.to_owned(),
        servers,
        token_file: None,
        fingerprint: None,
        ca: Vec::new(),
        cert: None,
        key: None,
        proxy: None,
        connections: None,
        line,
    };
    read_into(&mut section, reader, table)?;
    if section.key.is_some() && section.cert.is_none() {
        return Err((line, ConfigProblem::KeyAlone));
    }
    Ok(section)
}

fn read_into(
    section: &mut HostSection,
    reader: &Reader<'_>,
    table: &DeTable<'_>,
) -> Result<(), (Line, ConfigProblem)> {
    let path = |text: &str, folder: &Path| PathBuf::from(at_home(text, folder));
    for (key, value) in table {
        match key.get_ref().as_ref() {
            "token-file" => {
                let text = reader.text(value, "token-file", "a text")?;
                section.token_file = Some(path(text, reader.folder));
            }
            "fingerprint" => {
                let text = reader.text(value, "fingerprint", "a text such as \"sha-256:1f…\"")?;
                let wrong = |why| reader.at(value, ConfigProblem::HostFingerprint(why));
                section.fingerprint = Some(fingerprint(text).map_err(wrong)?);
            }
            "ca" => {
                let one = [value.clone()];
                let list = match value.get_ref().as_array() {
                    Some(list) => list.iter().as_slice(),
                    None => &one,
                };
                for value in list {
                    let text = reader.text(value, "ca", "a list of texts, paths of files")?;
                    section.ca.push(path(text, reader.folder));
                }
            }
            "cert" => {
                let text = reader.text(value, "cert", "a text, the path of a file")?;
                section.cert = Some(path(text, reader.folder));
            }
            "key" => {
                let text = reader.text(value, "key", "a text, the path of a file")?;
                section.key = Some(path(text, reader.folder));
            }
            "proxy" => {
                let text = reader.text(value, "proxy", "a text such as \"http://proxy:3128\"")?;
                let wrong = |why: swath_source::BadProxy| {
                    reader.at(value, ConfigProblem::Proxy(why.to_string()))
                };
                section.proxy = Some(text.parse().map_err(wrong)?);
            }
            "connections" => {
                let Some(number) = value.get_ref().as_integer() else {
                    return Err(reader.wrong_type(value, "connections", "a number from 1 to 256"));
                };
                let number = u32::from_str_radix(number.as_str(), number.radix()).ok();
                let within = number.filter(|count| (1..=256).contains(count));
                let why = || ConfigProblem::Value {
                    key: "connections",
                    why: "must be a number from 1 to 256".to_owned(),
                };
                section.connections = Some(within.ok_or_else(|| reader.at(value, why()))?);
            }
            other => {
                let (key_text, place) = (other.to_owned(), " of a host");
                let wrong = ConfigProblem::Key { key: key_text, place, known: KEYS.to_vec() };
                return Err(reader.at(key, wrong));
            }
        }
    }
    Ok(())
}

const KEYS: [&str; 7] = ["token-file", "fingerprint", "ca", "cert", "key", "proxy", "connections"];
