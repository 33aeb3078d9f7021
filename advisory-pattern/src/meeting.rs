//! Which two sites of a program, or of two, can lock one key without being one lock?

use crate::{Collision, KeySpace, Lock, Record, RecordError};

/// Two sites whose locks collide.
#[derive(Clone, Debug)]
pub struct Meeting<'a> {
    /// One site.
    pub here: &'a Record,
    /// Its key as written.
    pub here_key: String,
    /// The other site.
    pub there: &'a Record,
    /// Its key as written.
    pub there_key: String,
    /// How they collide.
    pub collision: Collision,
}

/// Compares every two of a program's sites, the later ones with those before them.
///
/// # Errors
/// The first site whose keys this version cannot read.
pub fn meetings(sites: &[Record]) -> Result<Vec<Meeting<'_>>, RecordError> {
    let used = used(sites)?;
    let mut found = Vec::new();
    for (at, here) in used.iter().enumerate() {
        for there in &used[..at] {
            // One crate in two versions is linked twice, and means the same lock.
            let is_one = std::ptr::eq(here.site, there.site)
                || here.site.version != there.site.version && is_same_code(here.site, there.site);
            if !is_one {
                found.extend(here.meets(there));
            }
        }
    }
    Ok(found)
}

/// Compares every site of one program with every site of another that shares its database.
///
/// A crate that both use is no collision, whatever line its function has by now.
///
/// # Errors
/// The first site whose keys this version cannot read.
pub fn meetings_between<'a>(
    here: &'a [Record],
    there: &'a [Record],
) -> Result<Vec<Meeting<'a>>, RecordError> {
    let (here, there) = (used(here)?, used(there)?);
    let pairs = here
        .iter()
        .flat_map(|here| there.iter().map(move |there| (here, there)));
    let others = pairs.filter(|(here, there)| !is_same_code(here.site, there.site));
    Ok(others
        .filter_map(|(here, there)| here.meets(there))
        .collect())
}

impl Meeting<'_> {
    /// What help calls the site that is told: its function or type, if it has a name.
    #[must_use]
    pub fn help(&self) -> String {
        let word = (self.here.kind != "macro").then_some(self.here.function.as_str());
        self.collision.help(&self.here_key, word)
    }

    /// Says what is wrong.
    #[must_use]
    pub fn headline(&self) -> String {
        self.collision.headline(&self.here_key, &self.there_key)
    }
}

/// A lock of a site, and its key as written.
struct Used<'a> {
    site: &'a Record,
    written: String,
    lock: Lock,
}

impl<'a> Used<'a> {
    fn meets(&self, there: &Self) -> Option<Meeting<'a>> {
        Some(Meeting {
            here: self.site,
            here_key: self.written.clone(),
            there: there.site,
            there_key: there.written.clone(),
            collision: self.lock.collision(&there.lock)?,
        })
    }
}

fn used(sites: &[Record]) -> Result<Vec<Used<'_>>, RecordError> {
    let mut used = Vec::new();
    for site in sites {
        let locks = site.locks()?.into_iter();
        used.extend(locks.map(|(written, lock)| Used {
            site,
            written,
            lock,
        }));
    }
    Ok(used)
}

/// Whether two sites are one function of one crate with the same keys, perhaps of two versions.
fn is_same_code(here: &Record, there: &Record) -> bool {
    fn code(site: &Record) -> impl PartialEq + '_ {
        let Record {
            krate,
            module,
            function,
            kind,
            keys,
            derivation,
            scope,
            ..
        } = site;
        let space = KeySpace::of(scope, kind);
        (krate, module, function, kind, keys, derivation, space)
    }
    code(here) == code(there)
}
