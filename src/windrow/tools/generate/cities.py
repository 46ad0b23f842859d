"""Cities in which the cards of generated purchases are used: name, country (ISO 3166), latitude and longitude."""

from __future__ import annotations

from typing import NamedTuple


class City(NamedTuple):
    """A city; degrees north and east."""

    name: str
    country: str
    lat: float
    lon: float


CITIES = (
    City("amsterdam", "NL", 52.3676, 4.9041),
    City("athens", "GR", 37.9838, 23.7275),
    City("auckland", "NZ", -36.8509, 174.7645),
    City("bangkok", "TH", 13.7563, 100.5018),
    City("barcelona", "ES", 41.3874, 2.1686),
    City("beijing", "CN", 39.9042, 116.4074),
    City("berlin", "DE", 52.5200, 13.4050),
    City("bogota", "CO", 4.7110, -74.0721),
    City("boston", "US", 42.3601, -71.0589),
    City("brussels", "BE", 50.8503, 4.3517),
    City("bucharest", "RO", 44.4268, 26.1025),
    City("budapest", "HU", 47.4979, 19.0402),
    City("buenos-aires", "AR", -34.6037, -58.3816),
    City("cairo", "EG", 30.0444, 31.2357),
    City("cape-town", "ZA", -33.9249, 18.4241),
    City("casablanca", "MA", 33.5731, -7.5898),
    City("chicago", "US", 41.8781, -87.6298),
    City("copenhagen", "DK", 55.6761, 12.5683),
    City("delhi", "IN", 28.6139, 77.2090),
    City("denver", "US", 39.7392, -104.9903),
    City("dubai", "AE", 25.2048, 55.2708),
    City("dublin", "IE", 53.3498, -6.2603),
    City("hamburg", "DE", 53.5511, 9.9937),
    City("helsinki", "FI", 60.1699, 24.9384),
    City("hong-kong", "HK", 22.3193, 114.1694),
    City("istanbul", "TR", 41.0082, 28.9784),
    City("jakarta", "ID", -6.2088, 106.8456),
    City("johannesburg", "ZA", -26.2041, 28.0473),
    City("lagos", "NG", 6.5244, 3.3792),
    City("lima", "PE", -12.0464, -77.0428),
    City("lisbon", "PT", 38.7223, -9.1393),
    City("london", "GB", 51.5072, -0.1276),
    City("los-angeles", "US", 34.0522, -118.2437),
    City("lyon", "FR", 45.7640, 4.8357),
    City("madrid", "ES", 40.4168, -3.7038),
    City("manila", "PH", 14.5995, 120.9842),
    City("melbourne", "AU", -37.8136, 144.9631),
    City("mexico-city", "MX", 19.4326, -99.1332),
    City("milan", "IT", 45.4642, 9.1900),
    City("montreal", "CA", 45.5019, -73.5674),
    City("mumbai", "IN", 19.0760, 72.8777),
    City("munich", "DE", 48.1351, 11.5820),
    City("nairobi", "KE", -1.2921, 36.8219),
    City("new-york", "US", 40.7128, -74.0060),
    City("oslo", "NO", 59.9139, 10.7522),
    City("paris", "FR", 48.8566, 2.3522),
    City("perth", "AU", -31.9523, 115.8613),
    City("prague", "CZ", 50.0755, 14.4378),
    City("rome", "IT", 41.9028, 12.4964),
    City("san-francisco", "US", 37.7749, -122.4194),
    City("santiago", "CL", -33.4489, -70.6693),
    City("sao-paulo", "BR", -23.5558, -46.6396),
    City("seoul", "KR", 37.5665, 126.9780),
    City("shanghai", "CN", 31.2304, 121.4737),
    City("singapore", "SG", 1.3521, 103.8198),
    City("stockholm", "SE", 59.3293, 18.0686),
    City("sydney", "AU", -33.8688, 151.2093),
    City("tokyo", "JP", 35.6762, 139.6503),
    City("toronto", "CA", 43.6532, -79.3832),
    City("vienna", "AT", 48.2082, 16.3738),
    City("warsaw", "PL", 52.2297, 21.0122),
    City("zurich", "CH", 47.3769, 8.5417),
)
