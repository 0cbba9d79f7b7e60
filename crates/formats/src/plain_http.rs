//! What is answered to plain HTTP where TLS is spoken: a status line that clients show, and that ours
//! understand.

/// Who speaks HTTPS, and was spoken to in plain HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpeaksHttps {
    /// A server.
    Server,
    /// A relay. Whoever hears of it by others, or of a server by a relay, knows whose address it is.
    Relay,
}

impl SpeaksHttps {
    /// The reason phrase of the answer, and its body.
    pub fn phrase(self) -> &'static str {
        match self {
            Self::Server => "this server speaks HTTPS",
            Self::Relay => "this relay speaks HTTPS",
        }
    }

    /// Who has answered so, by the status and the reason phrase.
    pub fn read(status: u16, phrase: &str) -> Option<SpeaksHttps> {
        let all = [Self::Server, Self::Relay];
        all.into_iter().find(|who| status == STATUS && who.phrase() == phrase)
    }
}

/// The status of the answer.
pub const STATUS: u16 = 400;
