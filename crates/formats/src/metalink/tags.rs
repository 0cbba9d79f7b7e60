//! Which elements have a meaning, and where.

/// The meaning of an element within its parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tag {
    Root,
    /// Metalink 3's list around files; some writers of Metalink 4 keep it.
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
    /// swath's own: an address that has only some ranges of the file.
    Held,
    /// Metalink 3's list around addresses.
    Resources,
    /// Metalink 3's list around digests.
    Verification,
    /// Anything else, including its content.
    Other,
}

impl Tag {
    /// Returns the meaning of a child of this name.
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

    /// Returns the meaning of a child of this name in swath's own namespace.
    pub(super) fn own_child(self, name: &str) -> Tag {
        if self == Tag::File && name == "held" { Tag::Held } else { Tag::Other }
    }

    /// Returns whether its text matters.
    pub(super) fn has_text(self) -> bool {
        use Tag::{Generator, Hash, Held, Identity, Metaurl, Origin, PieceHash, Size, Url};
        matches!(
            self,
            Generator | Origin | Size | Identity | Hash | PieceHash | Url | Metaurl | Held
        )
    }

    /// Returns its name for messages.
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
