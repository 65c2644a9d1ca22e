//! The sign that a client is there: a node that goes with its session. A client has one while it waits for something.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::oneshot;

use super::connection::Connection;
use super::store::ZooKeeperStore;
use super::trouble::Trouble;
use super::wire::{Code, CreateMode, Request};
use crate::locked::locked;
use crate::runtime::Moment;
use quorlock_protocol::ticket_kept;

/// What others know of this client.
#[derive(Debug, Default)]
pub(super) struct Life {
    /// On which session it was said that it is there.
    pub(super) said_on: Weak<Connection>,
    /// It waits for a lock until then, or has given up.
    waits_until: Option<Moment>,
}

impl ZooKeeperStore {
    /// Says that this client is there, unless that was said on this session. What is returned is sent already, and ends
    /// when it is done.
    pub(super) fn say_alive(
        &self,
        connection: &Arc<Connection>,
        ttl: Duration,
    ) -> Option<oneshot::Receiver<Result<(), Trouble>>> {
        let until = self.runtime.now().after(ticket_kept(ttl));
        {
            let mut life = locked(&self.life);
            life.waits_until = Some(life.waits_until.map_or(until, |before| before.max(until)));
            let is_said = life.said_on.upgrade().is_some_and(|on| Arc::ptr_eq(&on, connection));
            if is_said {
                return None;
            }
            life.said_on = Arc::downgrade(connection);
        }
        let announced = self.announce(connection);
        let (life, (done, is_done)) = (Arc::clone(&self.life), oneshot::channel());
        // Whoever needs it may give up before it is done.
        self.runtime.spawn(Box::pin(async move {
            let result = announced.await;
            if result.is_err() {
                locked(&life).said_on = Weak::new();
            }
            let _ = done.send(result);
        }));
        Some(is_done)
    }

    /// On a new session: says that this client is there if it waits for something.
    pub(super) async fn say_alive_again(
        &self,
        connection: &Arc<Connection>,
    ) -> Result<(), Trouble> {
        let waits = locked(&self.life).waits_until.is_some_and(|until| until > self.runtime.now());
        if !waits {
            return Ok(());
        }
        self.announce(connection).await?;
        locked(&self.life).said_on = Arc::downgrade(connection);
        Ok(())
    }

    fn announce(
        &self,
        connection: &Arc<Connection>,
    ) -> impl Future<Output = Result<(), Trouble>> + Send + use<> {
        let (keys, acl) = (&self.client.keys, self.client.acl());
        let alive = keys.alive(self.me);
        let create = Request::create(&alive, &[], acl, CreateMode::Ephemeral);
        let place = connection.send(Request::create(
            &keys.client(self.me),
            &[],
            acl,
            CreateMode::Container,
        ));
        let sign = connection.send(create.clone());
        let connection = Arc::clone(connection);
        async move {
            match place.await {
                Ok(_) | Err(Trouble::Code(Code::EXISTS)) => {}
                Err(trouble) => return Err(trouble),
            }
            match sign.await {
                Ok(_) => Ok(()),
                // Of the session before, with which it would go.
                Err(Trouble::Code(Code::EXISTS)) => {
                    let parts = [Request::delete(&alive), create.clone()];
                    let done = connection.multi(&parts).await?;
                    if done.iter().all(Result::is_ok) {
                        return Ok(());
                    }
                    // It went meanwhile.
                    connection.send(create).await.map(drop)
                }
                Err(trouble) => Err(trouble),
            }
        }
    }
}
