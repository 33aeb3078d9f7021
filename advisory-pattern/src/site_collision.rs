//! Which two lock sites, of one program or of two, can lock the same key without being one lock?

use crate::collision::Collision;
use crate::lock::Lock;
use crate::record::{Record, RecordError};

/// Holds two sites whose locks collide.
#[derive(Clone, Debug)]
pub struct SiteCollision<'a> {
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

/// Compares every two of a program's sites.
///
/// # Errors
/// The first site whose keys this version cannot read.
pub fn site_collisions(sites: &[Record]) -> Result<Vec<SiteCollision<'_>>, RecordError> {
    let locks = locks(sites)?;
    let mut collisions = Vec::new();
    for (at, here) in locks.iter().enumerate() {
        for there in &locks[..at] {
            // A crate that is linked in two versions has each of its sites twice.
            let is_same_site = std::ptr::eq(here.site, there.site)
                || here.site.version != there.site.version && is_same_code(here.site, there.site);
            if !is_same_site {
                collisions.extend(here.collision(there));
            }
        }
    }
    Ok(collisions)
}

/// Compares every site of one program with every site of another that shares its database.
///
/// The same function of a crate that both use does not collide, even if its line differs.
///
/// # Errors
/// The first site whose keys this version cannot read.
pub fn site_collisions_between<'a>(
    here: &'a [Record],
    there: &'a [Record],
) -> Result<Vec<SiteCollision<'a>>, RecordError> {
    let (here, there) = (locks(here)?, locks(there)?);
    let pairs = here
        .iter()
        .flat_map(|here| there.iter().map(move |there| (here, there)));
    let different = pairs.filter(|(here, there)| !is_same_code(here.site, there.site));
    Ok(different
        .filter_map(|(here, there)| here.collision(there))
        .collect())
}

impl SiteCollision<'_> {
    /// Says what to write instead at the first site.
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
struct SiteLock<'a> {
    site: &'a Record,
    written: String,
    lock: Lock,
}

impl<'a> SiteLock<'a> {
    fn collision(&self, there: &Self) -> Option<SiteCollision<'a>> {
        Some(SiteCollision {
            here: self.site,
            here_key: self.written.clone(),
            there: there.site,
            there_key: there.written.clone(),
            collision: self.lock.collision(&there.lock)?,
        })
    }
}

fn locks(sites: &[Record]) -> Result<Vec<SiteLock<'_>>, RecordError> {
    let mut locks = Vec::new();
    for site in sites {
        let site_locks = site.locks()?.into_iter();
        locks.extend(site_locks.map(|(written, lock)| SiteLock {
            site,
            written,
            lock,
        }));
    }
    Ok(locks)
}

/// Whether two sites are the same function of the same crate with the same keys, possibly in different versions.
fn is_same_code(here: &Record, there: &Record) -> bool {
    fn code(site: &Record) -> impl PartialEq + '_ {
        let Record {
            krate,
            module,
            function,
            kind,
            keys,
            derivation,
            ..
        } = site;
        let space = site.key_space().ok();
        (krate, module, function, kind, keys, derivation, space)
    }
    code(here) == code(there)
}
