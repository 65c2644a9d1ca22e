//! Handing a lock to another process, by its token.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::Error;
use crate::drive::{Claim, ConfirmRound, ExtendRound, InspectRound};
use crate::guard::Guard;
use crate::locker::Locker;
use crate::token::Token;

impl Locker {
    /// Goes on with a lock that another process, or another locker, has [kept](Guard::into_token), with all
    /// rights of its holder.
    ///
    /// The nodes are asked whether it is still held, and it is extended by this locker's TTL. From
    /// then on it is extended like any other, and released with the guard; a note that it has stays.
    /// A process that has the token holds the lock: two processes that both go on with it do not exclude
    /// each other, and count as one. The release of either is that of both. Processes that take part by
    /// the [id of the owner](crate::Owner::from_id) are counted besides.
    ///
    /// # Errors
    /// - [`Error::Lost`]: it is not held any more, or never was.
    /// - [`Error::NoQuorum`]: too few nodes answered to know. It is as it was; try again.
    /// - [`Error::Misuse`]: a name that no lock can have, a text that is no token, nodes that end records with the
    ///   session of their client, or the locker was shut down.
    ///
    /// # Cancel safety
    /// Dropping it leaves the lock as it is, but for the extension.
    pub async fn resume(
        &self,
        name: impl AsRef<[u8]>,
        token: impl AsRef<[u8]>,
    ) -> Result<Guard, Error> {
        let core = self.core();
        let name = core.settings.name(name)?;
        core.settings.check_outlives(&format!("the lock {name} was to be taken over"))?;
        let text = token.as_ref().trim_ascii();
        let Some(token) = Token::parse(text) else {
            // Not shown: it may be most of a secret.
            return Err(Error::misuse(
                format!("a token of {} bytes for the lock {name} cannot be read", text.len()),
                "pass it on as it was given, all of it",
            ));
        };
        if core.closed.load(Ordering::Acquire) {
            return Err(Error::misuse(
                format!("the lock {name} was to be gone on with after the shutdown of its Locker"),
                "connect a new Locker",
            ));
        }
        let look = InspectRound::start(core, name.clone());
        let status = poll_fn(|cx| look.poll(cx)).await;
        let claim = Claim::resumed(core, name, token, status.note_of(&token));
        let unsure = Unsure(Some(Arc::clone(&claim)));
        let round = ExtendRound::start(&claim)?;
        poll_fn(|cx| round.poll(cx)).await?;
        let fence = round.fence();
        claim.set_fence(fence.last);
        if !fence.agreed {
            let sure = ConfirmRound::start(&claim, fence.last);
            if !poll_fn(|cx| sure.poll(cx)).await {
                return Err(sure.unsure());
            }
        }
        unsure.confirm();
        Ok(Guard::new(claim))
    }
}

/// A claim that is not known to be held yet. Without an answer it is left alone, and not released.
struct Unsure(Option<Arc<Claim>>);

impl Unsure {
    fn confirm(mut self) {
        self.0 = None;
    }
}

impl Drop for Unsure {
    fn drop(&mut self) {
        if let Some(claim) = &self.0 {
            claim.detach();
        }
    }
}
