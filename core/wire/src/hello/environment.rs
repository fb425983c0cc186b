//! Where the client runs, as far as environment variables tell.

/// A function-as-a-service platform.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Faas {
    /// AWS Lambda.
    AwsLambda,
    /// Azure Functions.
    AzureFunctions,
    /// Google Cloud Functions.
    GcpFunctions,
    /// Vercel.
    Vercel,
}

impl Faas {
    /// Its name in client metadata.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::AwsLambda => "aws.lambda",
            Self::AzureFunctions => "azure.func",
            Self::GcpFunctions => "gcp.func",
            Self::Vercel => "vercel",
        }
    }
}

/// The longest region that is kept, in bytes; a longer one is left out.
const REGION_BYTES_MAX: usize = 64;

/// Where the client runs.
///
/// Read from environment variables by [`Environment::detect`]; the default is "nowhere special".
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Environment {
    /// The function-as-a-service platform; `None` also when variables of several contradict each other.
    pub faas: Option<Faas>,
    /// How long an invocation may take, in seconds.
    pub timeout_sec: Option<i32>,
    /// How much memory an invocation has, in megabytes.
    pub memory_mb: Option<i32>,
    /// Where in the world it runs.
    pub region: Option<heapless::String<REGION_BYTES_MAX>>,
    /// Whether Kubernetes runs the container.
    pub is_kubernetes: bool,
    /// Whether Docker runs the container: a file tells (`/.dockerenv`), so that a hosted caller sets it.
    pub is_docker: bool,
}

impl Environment {
    /// Detects the environment. `lookup` gives the value of a variable; an empty value counts as none.
    ///
    /// Source: MongoDB Handshake, "client.env" (MON-04 builds on it).
    pub fn detect<V: AsRef<str>>(mut lookup: impl FnMut(&'static str) -> Option<V>) -> Self {
        let mut value = |name| lookup(name).filter(|value| !value.as_ref().is_empty());
        let execution = value("AWS_EXECUTION_ENV");
        let is_lambda = execution.is_some_and(|value| value.as_ref().starts_with("AWS_Lambda_"))
            || value("AWS_LAMBDA_RUNTIME_API").is_some();
        let is_vercel = value("VERCEL").is_some();
        let is_azure = value("FUNCTIONS_WORKER_RUNTIME").is_some();
        let is_gcp = value("K_SERVICE").is_some() || value("FUNCTION_NAME").is_some();
        // Vercel runs on Lambda and shows its variables too.
        let faas = match (is_lambda || is_vercel, is_azure, is_gcp) {
            (true, false, false) if is_vercel => Some(Faas::Vercel),
            (true, false, false) => Some(Faas::AwsLambda),
            (false, true, false) => Some(Faas::AzureFunctions),
            (false, false, true) => Some(Faas::GcpFunctions),
            _ => None,
        };
        let (timeout, memory, region) = match faas {
            Some(Faas::AwsLambda) => (None, value("AWS_LAMBDA_FUNCTION_MEMORY_SIZE"), value("AWS_REGION")),
            Some(Faas::GcpFunctions) => {
                (value("FUNCTION_TIMEOUT_SEC"), value("FUNCTION_MEMORY_MB"), value("FUNCTION_REGION"))
            }
            Some(Faas::Vercel) => (None, None, value("VERCEL_REGION")),
            Some(Faas::AzureFunctions) | None => (None, None, None),
        };
        let number = |value: Option<V>| value.and_then(|value| value.as_ref().parse().ok());
        Self {
            faas,
            timeout_sec: number(timeout),
            memory_mb: number(memory),
            region: region.and_then(|value| heapless::String::try_from(value.as_ref()).ok()),
            is_kubernetes: value("KUBERNETES_SERVICE_HOST").is_some(),
            is_docker: false,
        }
    }

    /// Whether the client runs as a function: monitors then poll instead of stream, unless told otherwise.
    #[must_use]
    pub const fn is_faas(&self) -> bool {
        self.faas.is_some()
    }

    /// Whether there is nothing to tell.
    pub(super) const fn is_empty(&self) -> bool {
        self.faas.is_none() && !self.is_kubernetes && !self.is_docker
    }
}
