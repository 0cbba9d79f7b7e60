//! Which elements mean something, and where.

/// An element as its parent gives it meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tag {
    Root,
    /// Metalink 3's list around its files; some writers of Metalink 4 keep it.
    Files,
    Generator,
    Origin,
    File,
    Size,
    Identity,
    Hash,
    Pieces,
    PieceHash,
    Url,
    Metaurl,
    /// Ours: an address that has some ranges of the file alone.
    Held,
    /// Metalink 3's list around addresses.
    Resources,
    /// Metalink 3's list around digests.
    Verification,
    /// Anything else, and whatever lies in it.
    Other,
}

impl Tag {
    /// What a child of this name means.
    pub(super) fn child(self, name: &str) -> Tag {
        match (self, name) {
            (Tag::Root, "files") => Tag::Files,
            (Tag::Root, "generator") => Tag::Generator,
            (Tag::Root, "origin") => Tag::Origin,
            (Tag::Root | Tag::Files, "file") => Tag::File,
            (Tag::File, "size") => Tag::Size,
            (Tag::File, "identity") => Tag::Identity,
            (Tag::File, "resources") => Tag::Resources,
            (Tag::File, "verification") => Tag::Verification,
            (Tag::File | Tag::Verification, "hash") => Tag::Hash,
            (Tag::File | Tag::Verification, "pieces") => Tag::Pieces,
            (Tag::Pieces, "hash") => Tag::PieceHash,
            (Tag::File | Tag::Resources, "url") => Tag::Url,
            (Tag::File | Tag::Resources, "metaurl") => Tag::Metaurl,
            _ => Tag::Other,
        }
    }

    /// What a child of this name in swath's own namespace means.
    pub(super) fn own_child(self, name: &str) -> Tag {
        if self == Tag::File && name == "held" { Tag::Held } else { Tag::Other }
    }

    /// Whether its text is of interest.
    pub(super) fn has_text(self) -> bool {
        use Tag::{Generator, Hash, Held, Identity, Metaurl, Origin, PieceHash, Size, Url};
        matches!(
            self,
            Generator | Origin | Size | Identity | Hash | PieceHash | Url | Metaurl | Held
        )
    }

    /// Its name for messages.
    pub(super) fn name(self) -> &'static str {
        match self {
            Tag::Root => "metalink",
            Tag::Files => "files",
            Tag::Generator => "generator",
            Tag::Origin => "origin",
            Tag::File => "file",
            Tag::Size => "size",
            Tag::Identity => "identity",
            Tag::Hash | Tag::PieceHash => "hash",
            Tag::Pieces => "pieces",
            Tag::Url => "url",
            Tag::Metaurl => "metaurl",
            Tag::Held => "held",
            Tag::Resources => "resources",
            Tag::Verification => "verification",
            Tag::Other => "(unknown element)",
        }
    }
}
