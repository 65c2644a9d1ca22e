//! The same for locks that several processes share, with answers compared to the second.

use std::mem::discriminant;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use quorlock::node::{
    Answer, Call, ClientId, Failure, FailureKind, Grant, Holder, Inbox, Mark, MarkerState, Node,
    NodeOptions, ParticipantId, Proposal, Record, Restore, Secret, Ticket, TicketNumber, Writes,
    open,
};
use quorlock::runtime::{Runtime, TokioRuntime};
use quorlock::{Name, RedisOptions, Settings, Token};
use quorlock_testkit::{RedisServer, test};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::beside_a_server::{HandSet, Post, Question};
use super::{Asked, AskedVerb, Loses, Served, Server};
use crate::clock::Clock;
use crate::random::Random;
use crate::setup::{Dialect, Setup};

/// Long enough that nothing ends by itself meanwhile.
const TTL: Duration = Duration::from_secs(20);
const STEPS: u64 = 400;
const NAMES: [&str; 2] = ["a", "b"];

/// Two servers side by side, a real one and a simulated one.
struct Pair {
    real: Arc<dyn Node>,
    simulated: Server,
    run_id: u64,
    set: Arc<str>,
    clients: [ClientId; 2],
    tokens: Vec<Token>,
    participants: [ParticipantId; 2],
    random: Random,
    _post: Arc<Post>,
    grants: UnboundedReceiver<Grant>,
    runtime: Arc<dyn Runtime>,
    time: Arc<HandSet>,
}

impl Pair {
    async fn new(server: &RedisServer, dialect: Dialect, trusting: bool, seed: u64) -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
        let wall_us = (wall.as_micros() as u64).into();
        let time = Arc::new(HandSet { real: TokioRuntime::current(), wall_us });
        let runtime = Arc::clone(&time) as Arc<dyn Runtime>;
        // Only the first listens.
        let clients = [ClientId::random(&*runtime), ClientId::random(&*runtime)];
        let setup = Setup { max_ttl: TTL, ..Setup::new(seed, dialect) };
        let mut settings = Settings::default();
        settings.max_ttl = TTL;
        settings.node_limit = Duration::from_secs(10);
        let dialect_of_node = match dialect {
            Dialect::Redlock => quorlock::Dialect::Redlock,
            Dialect::Strict => quorlock::Dialect::Strict,
        };
        let mut options =
            RedisOptions::default().dialect(dialect_of_node).trust_new_nodes(trusting);
        // A machine that is busy must not make requests late: what is to be late is so by far.
        options.clock_ahead = Duration::from_secs(3);
        let options = options.into();
        let opened = open([server.url()], &settings, &options, &runtime, clients[0]);
        let real = opened.expect("a node").pop().expect("one");
        real.ready().await.expect("it connects");
        let (sender, grants) = unbounded_channel();
        let post = Arc::new(Post(sender));
        let inbox: Weak<dyn Inbox> = Arc::<Post>::downgrade(&post);
        real.listen(clients[0], 0, inbox);
        if trusting && dialect == Dialect::Strict {
            mark(&real, server, &settings, &options, &*runtime).await;
        }
        let run_id = 7;
        let set = setup.members().digest().into();
        let mut simulated =
            Server::new(Clock::new(0, 0), run_id, false, &setup, Some(setup.members()));
        if !trusting {
            simulated.forget(Loses::Everything, 0);
        }
        let tokens = (0..4).map(|_| Token::random(&*runtime)).collect();
        let participants = [(); 2].map(|()| ParticipantId::random(&*runtime));
        let random = Random::new(seed, 99);
        Self {
            real,
            simulated,
            run_id,
            set,
            clients,
            tokens,
            participants,
            random,
            _post: post,
            grants,
            runtime,
            time,
        }
    }

    /// A request that makes some sense, and the time in nanoseconds.
    fn any(&mut self, step: u64) -> (Asked, u64) {
        let random = &mut self.random;
        let who = random.below(self.tokens.len() as u64);
        let token = self.tokens[who as usize];
        let name = NAMES[usize::from(random.percent(30))].as_bytes().to_vec();
        let least = match random.below(16) {
            // What cannot be given out.
            0 => 1 << 53,
            1 => u64::MAX,
            _ => step * 100 + random.below(150),
        };
        let proposal =
            random.percent(90).then(|| Proposal { least, block: random.between(1, 16) as u16 });
        let ttl = TTL - Duration::from_millis(random.below(5_000));
        // The last of them has no listener.
        let client = self.clients[usize::from(who + 1 == self.tokens.len() as u64)];
        let ticket_no = match random.below(3) {
            0 => TicketNumber::Agreed(random.between(1, 50)),
            _ => TicketNumber::New(random.between(1, 50)),
        };
        let participant = match random.below(4) {
            who @ 0..2 => Some(self.participants[who as usize]),
            _ => None,
        };
        let verb = match random.below(20) {
            0..4 => AskedVerb::Acquire { token, ttl, proposal },
            4..6 => AskedVerb::Confirm { token, fence: least },
            6..9 => {
                let kinds = [Restore::Never, Restore::Heal(least), Restore::WinBack(least)];
                let restore = random.pick(&kinds).unwrap_or(Restore::Never);
                AskedVerb::Extend { token, ttl, restore, participant }
            }
            9..14 => {
                let (secret, sent) = (Secret::random(&*self.runtime), self.runtime.now());
                let ticket =
                    Ticket { client, waiter: who, secret, ticket_no, sent, keep: Duration::MAX };
                AskedVerb::Wait { token, ttl, ticket, yielding: random.percent(30), proposal }
            }
            14..18 => AskedVerb::Release { token, next: least, queued: true, participant },
            18 => AskedVerb::ForceRelease { holder: Holder::of(&token.text()) },
            _ => AskedVerb::Inspect,
        };
        let off_us = match random.below(12) {
            0 => 9_000_000,
            1 => -9_000_000,
            _ => 0,
        };
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
        let wall_us = (wall.as_micros() as u64).saturating_add_signed(off_us);
        // As the message of a grant repeats it.
        let sent = match &verb {
            AskedVerb::Wait { ticket, .. } => ticket.sent,
            _ => self.runtime.now(),
        };
        (Asked { name, sent, wall_us, set: Arc::clone(&self.set), verb }, wall.as_nanos() as u64)
    }

    async fn compare(&mut self, asked: Asked, now: u64, step: u64) {
        // What waits for a moment is sent with the time of day of its sending.
        self.time.wall_us.store(asked.wall_us, Ordering::SeqCst);
        let (answers, mut answer) = unbounded_channel();
        let name = Name::new(&asked.name).expect("a name");
        let question = Arc::new(Question { name, asked: asked.clone(), answers });
        self.real.submit(Call::new(question, 0));
        let real = answer.recv().await.expect("an answer");
        let listens = |client| client == self.clients[0];
        let did = self.simulated.execute(&asked, self.run_id, now, &listens);
        let context = format!("step {step}, {asked:?}: {real:?} and {:?}", did.served);
        assert!(same(&real, &did.served), "{context}");
        for (_, expected) in did.said {
            let received = tokio::time::timeout(Duration::from_secs(5), self.grants.recv()).await;
            assert_eq!(received.ok().flatten(), Some(expected), "{context}");
        }
        assert!(self.grants.try_recv().is_err(), "more grant messages than expected; {context}");
    }
}

fn same(real: &Answer, simulated: &Served) -> bool {
    let simulated = match simulated {
        Served::Answer(answer) => answer,
        Served::NoVote(_) => {
            return matches!(real, Answer::Failed(failure)
                if matches!(failure.kind(), FailureKind::Quarantined(_) | FailureKind::OtherSet));
        }
        Served::Clock(_) | Served::Unchecked(_) => {
            let kind = |failure: &Failure| failure.kind();
            return matches!(real, Answer::Failed(failure)
                if matches!(kind(failure), FailureKind::Clock | FailureKind::Late));
        }
    };
    match (real, simulated) {
        (Answer::Granted { fence: a }, Answer::Granted { fence: b }) => a == b,
        (Answer::Done, Answer::Done)
        | (Answer::LeftToOthers, Answer::LeftToOthers)
        | (Answer::Refused, Answer::Refused) => true,
        (Answer::Queued(a), Answer::Queued(b)) => {
            // Whether a grant message will come is a matter of the connection, not of the server.
            a.ticket_no == b.ticket_no && same_record(a.record, b.record)
        }
        (Answer::Seen(a), Answer::Seen(b)) => {
            a.waiters == b.waiters
                && same_record(a.record, b.record)
                && a.record.and_then(|it| it.fence) == b.record.and_then(|it| it.fence)
        }
        (Answer::Failed(a), Answer::Failed(b)) => {
            discriminant(&a.kind()) == discriminant(&b.kind())
        }
        _ => false,
    }
}

/// Has a real server vote.
async fn mark(
    real: &Arc<dyn Node>,
    server: &RedisServer,
    settings: &Settings,
    options: &NodeOptions,
    runtime: &dyn Runtime,
) {
    let ask = async |mark| {
        let wall = runtime.wall().duration_since(UNIX_EPOCH).expect("after 1970");
        let (sent, wall_us) = (runtime.now(), wall.as_micros() as u64);
        let (name, set) = (b"-".to_vec(), "".into());
        let asked = Asked { name, sent, wall_us, set, verb: AskedVerb::Mark(mark) };
        let (answers, mut answer) = unbounded_channel();
        let name = Name::new(&asked.name).expect("a name");
        real.submit(Call::new(Arc::new(Question { name, asked, answers }), 0));
        match answer.recv().await.expect("an answer") {
            Answer::Marker(Some(marker)) => marker,
            other => panic!("{other:?}"),
        }
    };
    let seen = ask(None).await.instance;
    let members = quorlock::node::members([server.url()], settings, options).expect("a good URL");
    let marked = ask(Some(Mark { seen, writes: Writes::Formed(members), nonce: 1 })).await;
    assert_eq!(marked.state, MarkerState::Formed);
}

/// The same holder, for as long, but for the time that it took to ask.
fn same_record(a: Option<Record>, b: Option<Record>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => {
            let left = |record: Record| record.remaining.unwrap_or_default();
            a.holder == b.holder && left(a).abs_diff(left(b)) < Duration::from_secs(4)
        }
        (a, b) => a.is_none() && b.is_none(),
    }
}

async fn side_by_side(dialect: Dialect, trusting: bool) {
    for seed in 1..4 {
        let server = RedisServer::start();
        let mut pair = Pair::new(&server, dialect, trusting, seed).await;
        for step in 0..STEPS {
            let (asked, now) = pair.any(step);
            pair.compare(asked, now, step).await;
        }
    }
}

#[test]
async fn redlock() {
    side_by_side(Dialect::Redlock, true).await;
}

#[test]
async fn strict() {
    side_by_side(Dialect::Strict, true).await;
}

/// A server that may have forgotten casts no votes, and takes back what its holders store again.
#[test]
async fn strict_in_quarantine() {
    side_by_side(Dialect::Strict, false).await;
}
