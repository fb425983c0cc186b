//! The plan of the demo, from `NAME=VALUE` arguments of the command line.

use core::time::Duration;
use poolhouse_embassy::{Credential, Options, PoolOptions};

/// The arguments of the command line.
pub(crate) const USAGE: &str = "demo seeds=HOST:PORT[,HOST:PORT].. [set=NAME] [user=NAME password=TEXT] \
     [ca=BASE64 (with TLS)] [tasks=1..4 (3)] [documents=COUNT (each task, 10)] [period=MS (1000)] [seconds=LIMIT (60)] [status=SECONDS (0: never)] \
     [sleeps=COUNT (0)] [asleep=MS (300)]";

/// The most seeds.
const SEEDS_MAX: usize = 4;
/// The timeout of an operation.
pub(crate) const OPERATION: Duration = Duration::from_secs(5);
/// The maximum number of tasks that send.
pub(crate) const TASKS_MAX: usize = 4;

/// The parameters of the demo.
#[derive(Clone, Copy)]
pub(crate) struct Plan {
    seeds: [&'static str; SEEDS_MAX],
    seed_count: usize,
    set: Option<&'static str>,
    /// The certificate of the trusted authority, in base64, as between the lines of a PEM file.
    #[cfg(feature = "tls")]
    pub(crate) authority: &'static str,
    user: Option<&'static str>,
    password: Option<&'static str>,
    /// The number of tasks that send.
    pub(crate) tasks: usize,
    /// The number of documents of each task.
    pub(crate) documents: u32,
    /// The period between two documents.
    pub(crate) period_ms: u64,
    /// The time limit of the whole demo.
    pub(crate) limit_s: u64,
    /// The period between two lines of status; 0 for no status.
    pub(crate) status_s: u64,
    /// How often the device of `field` sleeps.
    pub(crate) sleeps: u32,
    /// The duration of each sleep.
    pub(crate) asleep_ms: u64,
}

impl Plan {
    /// Parses the arguments; `None` if they are invalid.
    pub(crate) fn read(arguments: impl Iterator<Item = &'static str>) -> Option<Self> {
        let mut plan = Self {
            seeds: [""; SEEDS_MAX],
            seed_count: 0,
            set: None,
            #[cfg(feature = "tls")]
            authority: "",
            user: None,
            password: None,
            tasks: 3,
            documents: 10,
            period_ms: 1000,
            limit_s: 60,
            status_s: 0,
            sleeps: 0,
            asleep_ms: 300,
        };
        for argument in arguments {
            let (name, value) = argument.split_once('=')?;
            match name {
                "seeds" => {
                    for seed in value.split(',') {
                        *plan.seeds.get_mut(plan.seed_count)? = seed;
                        plan.seed_count += 1;
                    }
                }
                "set" => plan.set = Some(value),
                #[cfg(feature = "tls")]
                "ca" => plan.authority = value,
                "user" => plan.user = Some(value),
                "password" => plan.password = Some(value),
                "tasks" => plan.tasks = value.parse().ok().filter(|tasks| (1..=TASKS_MAX).contains(tasks))?,
                "documents" => plan.documents = value.parse().ok()?,
                "period" => plan.period_ms = value.parse().ok()?,
                "seconds" => plan.limit_s = value.parse().ok()?,
                "status" => plan.status_s = value.parse().ok()?,
                "sleeps" => plan.sleeps = value.parse().ok()?,
                "asleep" => plan.asleep_ms = value.parse().ok()?,
                _ => return None,
            }
        }
        (plan.seed_count > 0 && plan.user.is_some() == plan.password.is_some()).then_some(plan)
    }

    /// The options of the client. A program with fixed servers defines them in a `const`, so an
    /// invalid option fails the build.
    pub(crate) fn options(&'static self, random: fn(&mut [u8])) -> Options {
        const POOL: PoolOptions = PoolOptions { max_pool_size: 2, min_pool_size: 1, ..PoolOptions::DEFAULT };
        Options {
            seeds: self.seeds.get(..self.seed_count).unwrap_or_default(),
            replica_set: self.set,
            direct_connection: self.set.is_none() && self.seed_count == 1,
            pool: POOL,
            timeout: Some(OPERATION),
            app_name: Some("poolhouse-demo"),
            credential: self.user.zip(self.password).map(|(user, password)| Credential::new(user, password)),
            random: Some(random),
            ..Options::DEFAULT
        }
    }
}
