//! The answer to plain HTTP on a TLS port: a status line that clients show and swath understands.

/// A peer that speaks HTTPS but got plain HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpeaksHttps {
    /// A server.
    Server,
    /// A relay; distinct from a server, as the answer may have passed other relays.
    Relay,
}

impl SpeaksHttps {
    /// Returns the reason phrase of the answer, which is also its body.
    pub fn phrase(self) -> &'static str {
        match self {
            Self::Server => "this server speaks HTTPS",
            Self::Relay => "this relay speaks HTTPS",
        }
    }

    /// Returns who gave such an answer, by status and reason phrase.
    pub fn read(status: u16, phrase: &str) -> Option<SpeaksHttps> {
        let all = [Self::Server, Self::Relay];
        all.into_iter().find(|who| status == STATUS && who.phrase() == phrase)
    }
}

/// The status of the answer.
pub const STATUS: u16 = 400;
