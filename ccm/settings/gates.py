"""Upstream's feature gates by name: none of them changes anything here, a wrong name is told."""

_OF_CONTROLLER_MANAGERS = """
    AllAlpha AllBeta
    CloudControllerManagerWatchBasedRoutesReconciliation CloudControllerManagerWebhook
    ControllerManagerReleaseLeaderElectionLockOnExit
    ContextualLogging LoggingAlphaOptions LoggingBetaOptions
    NativeHistograms ComponentFlagz ComponentStatusz
"""

_OF_THE_API_SERVER_LIBRARY = """
    APIResponseCompression APIServerIdentity APIServerTracing APIServingWithRoutine
    AggregatedDiscoveryRemoveBetaType AllowParsingUserUIDFromCertAuth
    AllowUnsafeMalformedObjectDeletion AnonymousAuthConfigurableEndpoints AuthorizeWithSelectors
    BtreeWatchCache CBORServingAndStorage ConcurrentWatchObjectDecode ConsistentListFromCache
    ConstrainedImpersonation CoordinatedLeaderElection DeclarativeValidation
    DeclarativeValidationBeta DeclarativeValidationTakeover DetectCacheInconsistency KMSv1
    ListFromCacheSnapshot ManifestBasedAdmissionControlConfig MutatingAdmissionPolicy OpenAPIEnums
    RemoteRequestHeaderUID ResilientWatchCacheInitialization RetryGenerateName
    SeparateCacheWatchRPC ShardedListAndWatch SizeBasedListCostEstimate StorageVersionAPI
    StorageVersionHash StreamingCollectionEncodingToJSON StreamingCollectionEncodingToProtobuf
    StructuredAuthenticationConfiguration StructuredAuthenticationConfigurationEgressSelector
    StructuredAuthenticationConfigurationJWKSMetrics TokenRequestServiceAccountUIDValidation
    UnauthenticatedHTTP2DOSMitigation UnknownVersionInteroperabilityProxy
    WatchCacheInitializationPostStartHook WatchList
"""

GATES = frozenset((_OF_CONTROLLER_MANAGERS + _OF_THE_API_SERVER_LIBRARY).split())
